package durable

import (
	"maps"
	"time"
)

// StartOption configures the start of an instance. [InstanceID], [Version], [Tags] and
// [StartAt] implement it.
type StartOption interface{ applyStart(*startOptions) }

type startOptions struct {
	id      InstanceID
	version *Version // nil if none was chosen
	tags    map[string]string
	at      time.Time
}

// Tags are names with values that are attached to an instance when it is started. Its
// children inherit them. In the call of an activity they are visible to the activity. In
// the call of a child they are added to the inherited tags. Several Tags options are
// merged; for the same name the last value is used.
//
// Applies to: [Start], [StartFrom], [Client.StartByName], [Client.Restart],
// [CallSubOrchestrator], [CallActivity], [CallHTTP], [Map].
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

// StartAt returns the option to start an instance at time t. Until then the instance is
// Pending. The zero time, or a time in the past, means immediately.
//
// Applies to: [Start], [StartFrom], [Client.StartByName], [Client.Restart].
func StartAt(t time.Time) StartOption { return startAt(t) }

type startAt time.Time

func (at startAt) applyStart(o *startOptions) { o.at = time.Time(at) }
