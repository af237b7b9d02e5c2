package durable

import (
	"maps"
	"time"
)

// A StartOption says more about an instance that is started: [InstanceID],
// [Version], [Tags] and [StartAt] are such.
type StartOption interface{ applyStart(*startOptions) }

type startOptions struct {
	id      InstanceID
	version *Version // nil: none was chosen
	tags    map[string]string
	at      time.Time
}

// Tags are names with values that an instance is started with. Its children
// inherit them. As an [ActivityOption] they are for the activity to see, and as
// a [SubOrchestrationOption] they are added to what the child inherits. Several
// Tags options add up; of values for one name the last counts.
type Tags map[string]string

func (t Tags) applyStart(o *startOptions)                       { t.addTo(&o.tags) }
func (t Tags) applyActivity(o *activityOptions)                 { t.addTo(&o.tags) }
func (t Tags) applySubOrchestration(o *subOrchestrationOptions) { t.addTo(&o.tags) }

func (t Tags) addTo(tags *map[string]string) {
	if *tags == nil {
		*tags = make(map[string]string, len(t))
	}
	maps.Copy(*tags, t)
}

// StartAt returns the option to start an instance at a time. Until then it is
// Pending. A time that has passed, and the zero time, mean at once.
func StartAt(t time.Time) StartOption { return startAt(t) }

type startAt time.Time

func (at startAt) applyStart(o *startOptions) { o.at = time.Time(at) }
