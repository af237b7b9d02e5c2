package hubcli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// drainState counts the work in flight in a hub.
type drainState struct {
	Drained   bool `json:"drained"`
	Instances int  `json:"instancesNotEnded"`
	Messages  int  `json:"messages"` // in all queues, including hidden messages
	Locked    int  `json:"entitiesLocked"`
	Queued    int  `json:"entitiesWithQueuedOperations"`
	Workers   int  `json:"workers"`
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
	if err := countMessages(c, &s); err != nil {
		return err
	}
	s.Drained = s.Instances+s.Messages+s.Locked+s.Queued == 0
	if s.Drained {
		return c.print(s, fmt.Sprintf("The hub is drained: no work is in flight. Running workers: %d", s.Workers))
	}
	text := fmt.Sprintf("The hub is not drained. Instances that have not ended: %d. Messages: %d. Locked entities: %d. Entities with queued operations: %d.",
		s.Instances, s.Messages, s.Locked, s.Queued)
	if err := c.print(s, text); err != nil {
		return err
	}
	return errors.New("work is in flight")
}

// countMessages counts messages and workers. A hub in a local file has none.
func countMessages(c command, s *drainState) error {
	a, err := c.request(http.MethodGet, []string{"scale"}, nil, nil, nil)
	if a != nil && a.status == http.StatusNotImplemented {
		return nil
	}
	if err != nil {
		return err
	}
	scale, err := decode[struct{ StoredMessageCount, WorkerCount int }](a)
	s.Messages, s.Workers = scale.StoredMessageCount, scale.WorkerCount
	return err
}
