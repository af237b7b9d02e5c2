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

// A bulk does to one instance, or to all that match, what its verb says.
type bulk struct{ command }

// control does what the verb's name says.
func (c bulk) control() error {
	query := url.Values{}
	if c.flags.reason != "" {
		query.Set("reason", c.flags.reason)
	}
	kind := map[string]struct{ past, statuses string }{
		"terminate": {"terminated", notEnded}, "suspend": {"suspended", "Pending,Running,ContinuedAsNew"},
		"resume": {"resumed", "Suspended"}, "rewind": {"rewound", "Failed"},
	}[c.verb]
	act := func(id string) error {
		_, err := c.request(http.MethodPost, []string{"instances", id, c.verb}, query, nil, nil)
		return err
	}
	if len(c.args) == 0 || c.flags.dryRun {
		return c.many(kind.past, kind.statuses, act)
	}
	if err := act(c.args[0]); err != nil {
		return err
	}
	return c.done(kind.past + " " + c.args[0])
}

func (c bulk) raise() error {
	data, err := c.payload(c.flags.data, c.flags.dataFile, "--data and --data-file")
	if err != nil {
		return err
	}
	if data == nil {
		data = []byte("null")
	}
	event := c.args[len(c.args)-1]
	act := func(id string) error {
		_, err := c.request(http.MethodPost, []string{"instances", id, "raiseEvent", event}, nil, data, nil)
		return err
	}
	if c.args = c.args[:len(c.args)-1]; len(c.args) == 0 || c.flags.dryRun {
		return c.many("sent "+event, notEnded, act)
	}
	if err := act(c.args[0]); err != nil {
		return err
	}
	return c.done(fmt.Sprintf("raised %s for %s", event, c.args[0]))
}

// ended are the statuses of instances to which nothing happens any more.
const ended = "Completed,Failed,Terminated,Canceled"

func (c bulk) restart() error {
	act := func(id string) (string, error) {
		query := url.Values{"restartWithNewInstanceId": {strconv.FormatBool(!c.flags.sameID)}}
		a, err := c.request(http.MethodPost, []string{"instances", id, "restart"}, query, nil, nil)
		if err != nil {
			return "", err
		}
		started, err := decode[struct{ ID string }](a)
		return started.ID, err
	}
	if len(c.args) == 0 || c.flags.dryRun {
		return c.many("restarted", ended, func(id string) error { _, err := act(id); return err })
	}
	id, err := act(c.args[0])
	if err != nil {
		return err
	}
	return c.print(map[string]string{"instanceId": id}, id)
}

func (c bulk) purge() error {
	act := func(id string) error {
		_, err := c.request(http.MethodDelete, []string{"instances", id}, nil, nil, nil)
		return err
	}
	switch {
	case c.flags.dryRun, len(c.args) == 0 && c.picks():
		return c.many("purged", ended, act)
	case len(c.args) == 0:
		return c.purgeMany()
	}
	if err := act(c.args[0]); err != nil {
		return err
	}
	return c.done("purged " + c.args[0])
}

// purgeMany has the app purge all that the flags select, which is faster than one by one.
func (c bulk) purgeMany() error {
	if err := c.mustSelect(); err != nil {
		return err
	}
	query, err := c.selection()
	if err != nil {
		return err
	}
	if c.flags.after == "" {
		query.Set("createdTimeFrom", "0001-01-02T00:00:00Z")
	}
	defer c.working("purging")()
	a, err := c.request(http.MethodDelete, []string{"instances"}, query, nil, nil)
	if err != nil {
		return err
	}
	purged, err := decode[struct {
		InstancesDeleted int `json:"instancesDeleted"`
	}](a)
	if err != nil {
		return err
	}
	return c.print(purged, fmt.Sprintf("instances purged: %d", purged.InstancesDeleted))
}

// mustSelect returns an error unless the flags say which instances are meant.
func (c bulk) mustSelect() error {
	f := c.flags
	if !f.all && !c.picks() && f.status == "" && f.prefix == "" && f.after == "" && f.before == "" {
		return usageError("an ID, a filter such as --name, --tag or --status, or --all must say which instances are meant")
	}
	return nil
}

// many calls act for the instance that is named, or each that the flags select, by default
// those in some statuses, and prints how many they were. With --dry-run it only shows them.
// All are looked up before anything is done. What became impossible meanwhile is told, and
// does not end it.
func (c bulk) many(past, statuses string, act func(id string) error) error {
	var found []json.RawMessage
	var ids []string
	r := &replays{command: c.command}
	if len(c.args) == 1 {
		a, err := c.instance(http.MethodGet, nil, url.Values{"showInput": {"false"}}, nil)
		if err != nil {
			return err
		}
		found = []json.RawMessage{a.body}
	} else {
		if err := c.mustSelect(); err != nil {
			return err
		}
		if c.flags.status == "" {
			c.flags.status = statuses
		}
		if _, err := r.each(func(one instance) error {
			raw, err := json.Marshal(one)
			r.mu.Lock()
			defer r.mu.Unlock()
			ids, found = append(ids, one.InstanceID), append(found, raw)
			return err
		}); err != nil {
			return err
		}
	}
	if c.flags.dryRun {
		c.tell(fmt.Sprintf("Nothing was done. Instances that would be %s: %d", past, len(found)))
		return c.instances(found)
	}
	defer c.working(c.verb)()
	refused := 0
	err := sideBySide(ids, func(id string) error {
		err := act(id)
		if answer, ok := errors.AsType[*answerError](err); ok && (exitCode(answer) == ExitNotFound || exitCode(answer) == ExitRefused) {
			r.mu.Lock()
			defer r.mu.Unlock()
			refused++
			c.tell(fmt.Sprintf("instance %q: %s", id, strings.TrimSuffix(answer.text, ".")))
			return nil
		}
		return err
	})
	text := fmt.Sprintf("instances %s: %d", past, len(ids)-refused)
	err = errors.Join(err, c.print(map[string]any{"done": past, "instances": len(ids) - refused, "refused": refused}, text))
	if err == nil && refused > 0 {
		err = fmt.Errorf("%d of %d instances were not in a state for it any more", refused, len(ids))
	}
	return err
}
