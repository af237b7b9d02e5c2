package hubcli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A tail runs the verb tail.
type tail struct{ command }

// run prints changes until the program is interrupted or the named instance ends.
func (c tail) run() error {
	if c.flags.every <= 0 {
		return usageError(fmt.Sprintf("--every is %v; want a time above 0", c.flags.every))
	}
	look := c.statusChanges()
	if len(c.args) == 1 {
		look = c.newEvents()
	}
	for {
		over, err := look()
		switch {
		case c.ctx.Err() != nil:
			return nil // interrupted by the user
		case err != nil || over:
			return err
		}
		select {
		case <-time.After(c.flags.every):
		case <-c.ctx.Done():
			return nil
		}
	}
}

// line prints one change: the cells or, with --output json, v on one line.
func (c tail) line(v any, cells ...string) error {
	text := strings.TrimRight(strings.Join(cells, "\t"), "\t")
	if c.flags.output == "json" {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text = string(b)
	}
	_, err := fmt.Fprintln(c.program.Stdout, text)
	return err
}

// newEvents returns a function that prints the events added to the history since its previous call. It
// reports whether the instance has ended.
func (c tail) newEvents() func() (over bool, err error) {
	seen, first := 0, ""
	return func() (bool, error) {
		a, err := c.instance(http.MethodGet, nil, nil, nil)
		if err != nil {
			return false, err
		}
		i, err := decode[instance](a)
		if err != nil {
			return false, err
		}
		if a, err = c.instance(http.MethodGet, []string{"history"}, nil, nil); err != nil {
			return false, err
		}
		events, err := decode[[]json.RawMessage](a)
		if err != nil {
			return false, err
		}
		if len(events) > 0 && string(events[0]) != first { // a new execution
			seen, first = 0, string(events[0])
		}
		for _, raw := range events[min(seen, len(events)):] {
			e, err := decode[event](&answer{body: raw})
			if err != nil {
				return false, err
			}
			if err := c.line(raw, e.Timestamp, e.EventType, cell(e.Name), c.short(whole(e.Result)+whole(e.Reason)+whole(e.Input))); err != nil {
				return false, err
			}
		}
		seen = len(events)
		return i.hasEnded(), nil
	}
}

// statusChanges returns a function that prints the instances that are new or have changed status since
// its previous call. The first call prints nothing.
func (c tail) statusChanges() func() (over bool, err error) {
	var before map[string]string // statuses by ID
	anyStatus := c.flags.status == ""
	return func() (bool, error) {
		now := map[string]string{}
		var changed []instance
		r := &replays{command: c.command}
		if anyStatus {
			c.flags.status = strings.Join(statuses, ",")
		}
		_, err := r.each(func(one instance) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			now[one.InstanceID] = one.RuntimeStatus
			if before != nil && before[one.InstanceID] != one.RuntimeStatus {
				changed = append(changed, one)
			}
			return nil
		})
		if err != nil {
			return false, err
		}
		for _, one := range changed {
			change := map[string]string{"instanceId": one.InstanceID, "name": one.Name, "was": before[one.InstanceID], "runtimeStatus": one.RuntimeStatus, "at": one.LastUpdatedTime}
			if err := c.line(change, one.LastUpdatedTime, one.RuntimeStatus, cell(one.Name), cell(one.InstanceID)); err != nil {
				return false, err
			}
		}
		before = now
		return false, nil
	}
}
