package hubcli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// drainState counts the work in flight in a hub.
type drainState struct {
	Drained   bool `json:"drained"`
	Instances int  `json:"instancesNotEnded"`
	Messages  *int `json:"messages"` // in all queues, including hidden messages; nil if not known
	Locked    int  `json:"entitiesLocked"`
	Queued    int  `json:"entitiesWithQueuedOperations"`
	Workers   int  `json:"workers"`

	Unreadable int `json:"unreadable"` // records that cannot be read
}

// drained prints the work in flight in a hub. It fails if there is any.
func drained(c command) error {
	defer c.working("looking for work in flight")()
	var s drainState
	c.flags.all, c.flags.top = true, 1 // for each list
	list := func(query url.Values, each func(json.RawMessage) error) error {
		var failed error
		_, err := c.pages([]string{"instances"}, query, func(raw json.RawMessage) bool {
			failed = errors.Join(failed, each(raw))
			return false
		})
		return errors.Join(err, failed)
	}
	err := list(url.Values{"runtimeStatus": {notEnded}, "showInput": {"false"}, "showOutput": {"false"}}, func(raw json.RawMessage) error {
		var i instance
		err := json.Unmarshal(raw, &i)
		if !strings.HasPrefix(i.InstanceID, "@") {
			s.Instances++
		}
		return err
	})
	if err != nil {
		return err
	}
	s.Unreadable = c.unreadable
	err = list(url.Values{"instanceIdPrefix": {"@"}, "showInput": {"false"}, "showOutput": {"false"}}, func(raw json.RawMessage) error {
		var entity struct {
			CustomStatus struct {
				LockedBy  string
				QueueSize int
			}
		}
		err := json.Unmarshal(raw, &entity)
		if entity.CustomStatus.LockedBy != "" {
			s.Locked++
		}
		if entity.CustomStatus.QueueSize > 0 {
			s.Queued++
		}
		return err
	})
	if err != nil {
		return err
	}
	s.Unreadable = max(s.Unreadable, c.unreadable) // both lists skip the same records
	c.unreadable = s.Unreadable
	if err := countMessages(c, &s); err != nil {
		return err
	}
	none := s.Instances+s.Locked+s.Queued == 0
	switch {
	case none && s.Messages == nil:
		return errors.Join(c.print(s, "No readable record has work in flight. Messages: not known."), c.incomplete(),
			errors.New("not known whether the hub is drained: its storage, such as a local file, does not report messages"))
	case none && *s.Messages == 0 && s.Unreadable > 0:
		return c.print(s, "It is not known whether the hub is drained. No readable record has work in flight.")
	case none && *s.Messages == 0:
		s.Drained = true
		return c.print(s, fmt.Sprintf("The hub is drained: no work is in flight. Running workers: %d", s.Workers))
	}
	messages := "not known"
	if s.Messages != nil {
		messages = strconv.Itoa(*s.Messages)
	}
	text := fmt.Sprintf("The hub is not drained. Instances that have not ended: %d. Messages: %s. Locked entities: %d. Entities with queued operations: %d.",
		s.Instances, messages, s.Locked, s.Queued)
	return errors.Join(c.print(s, text), errors.New("work is in flight"))
}

// countMessages counts messages and workers. A hub in a local file reports neither. Workers of
// older versions on partition logs report no stored messages. The queue lengths include only messages that wait.
func countMessages(c command, s *drainState) error {
	a, err := c.request(http.MethodGet, []string{"scale"}, nil, nil, nil)
	if a != nil && a.status == http.StatusNotImplemented {
		return nil
	}
	if err != nil {
		return err
	}
	scale, err := decode[struct {
		StoredMessageCount, WorkItemQueueLength, WorkerCount int
		ControlQueueLengths                                  []int
	}](a)
	waiting := scale.WorkItemQueueLength
	for _, n := range scale.ControlQueueLengths {
		waiting += n
	}
	s.Messages, s.Workers = new(max(scale.StoredMessageCount, waiting)), scale.WorkerCount
	return err
}
