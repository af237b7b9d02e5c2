package hubcli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A bulk runs a verb on one instance or on all instances that match.
type bulk struct{ command }

// An action is the effect of a verb on an instance.
type action struct {
	past     string // such as "terminated"
	defaults string // the statuses that a verb without --status selects
	allows   string // the statuses in which the app accepts the action; empty means all
	act      func(id string) error
}

// control runs a verb that takes only a reason, such as terminate.
func (c bulk) control() error {
	query := url.Values{}
	if c.flags.reason != "" {
		query.Set("reason", c.flags.reason)
	}
	kind := map[string]struct{ past, statuses string }{
		"terminate": {"terminated", notEnded}, "suspend": {"suspended", "Pending,Running,ContinuedAsNew"},
		"resume": {"resumed", "Suspended"}, "rewind": {"rewound", "Failed"},
	}[c.verb]
	return c.run(action{kind.past, kind.statuses, kind.statuses, func(id string) error {
		_, err := c.request(http.MethodPost, []string{"instances", id, c.verb}, query, nil, nil)
		return err
	}}, func(id string) error { return c.done(kind.past + " " + id) })
}

func (c bulk) raise() error {
	data, err := c.payload()
	if err != nil {
		return err
	}
	if data == nil {
		data = []byte("null")
	}
	event := c.args[len(c.args)-1]
	c.args = c.args[:len(c.args)-1]
	return c.run(action{"sent " + event, notEnded, notEnded, func(id string) error {
		_, err := c.request(http.MethodPost, []string{"instances", id, "raiseEvent", event}, nil, data, nil)
		return err
	}}, func(id string) error { return c.done(fmt.Sprintf("raised %s for %s", event, id)) })
}

// ended lists the statuses of instances that have ended.
const ended = "Completed,Failed,Terminated,Canceled"

func (c bulk) restart() error {
	allows := "" // the restarted instance gets a new ID
	if c.flags.sameID {
		allows = ended
	}
	var started struct{ ID string }
	return c.run(action{"restarted", ended, allows, func(id string) error {
		query := url.Values{"restartWithNewInstanceId": {strconv.FormatBool(!c.flags.sameID)}}
		a, err := c.request(http.MethodPost, []string{"instances", id, "restart"}, query, nil, nil)
		if err == nil && len(c.args) > 0 {
			started, err = decode[struct{ ID string }](a)
		}
		return err
	}}, func(string) error { return c.print(map[string]string{"instanceId": started.ID}, started.ID) })
}

func (c bulk) purge() error {
	if len(c.args) == 0 && !c.flags.dryRun && !c.filtersLocally() {
		return c.purgeMany()
	}
	return c.run(action{"purged", ended, ended, func(id string) error {
		_, err := c.request(http.MethodDelete, []string{"instances", id}, nil, nil, nil)
		return err
	}}, func(id string) error { return c.done("purged " + id) })
}

// purgeMany purges all selected instances with one request, which is faster than one request each.
func (c bulk) purgeMany() error {
	if err := c.checkSelected(); err != nil {
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
	if a != nil {
		c.addUnreadable(a)
	}
	if a != nil && a.status == http.StatusNotFound {
		return c.report("purged", 0, 0, 0)
	}
	if err != nil {
		return err
	}
	purged, err := decode[struct{ InstancesDeleted int }](a)
	if err != nil {
		return err
	}
	return c.report("purged", purged.InstancesDeleted, 0, 0)
}

// report prints the result of a verb that ran without an ID. failed includes the instances that were
// not attempted.
func (c bulk) report(past string, done, refused, failed int) error {
	return c.print(map[string]any{"done": past, "instances": done, "refused": refused, "failed": failed}, fmt.Sprintf("instances %s: %d", past, done))
}

// checkSelected returns an error unless the flags select instances.
func (c bulk) checkSelected() error {
	if !c.flags.all && !c.flags.filter() {
		return usageError("select instances with an ID, a filter such as --name, --tag or --status, or --all")
	}
	return nil
}

// run performs an action on the instance that the first argument names, and prints the result with
// show. Without an argument it performs the action on all instances that the flags select. With
// --dry-run it only prints the instances. An entity ignores the messages of all verbs except purge.
func (c bulk) run(a action, show func(id string) error) error {
	switch {
	case len(c.args) == 0:
		return c.many(a)
	case history.IsEntity(c.args[0]) && c.verb != "purge":
		return c.refuseEntity()
	case c.flags.dryRun:
		return c.dryRunOf(a)
	}
	if err := a.act(c.args[0]); err != nil {
		return err
	}
	return show(c.args[0])
}

// refuseEntity returns the error for an action that entities do not support.
func (c bulk) refuseEntity() error {
	name, key, _ := strings.Cut(strings.TrimPrefix(c.args[0], "@"), "@")
	return refusal(fmt.Sprintf("%q is an entity; %s works only on orchestrations: use entity signal %s %s OPERATION, or purge",
		c.args[0], c.verb, name, key))
}

// dryRunOf prints the named instance. If its status does not allow the action, it fails as the action
// would.
func (c bulk) dryRunOf(a action) error {
	answer, err := c.instance(http.MethodGet, nil, withoutPayloads(), nil)
	if err != nil {
		return err
	}
	one, err := decode[instance](answer)
	switch {
	case err != nil:
		return err
	case !a.accepts(one):
		return refusal(fmt.Sprintf("instance %q is %s; %s needs one of %s", one.InstanceID, one.RuntimeStatus, c.verb, strings.ReplaceAll(a.allows, ",", ", ")))
	}
	return c.wouldDo(a, []json.RawMessage{answer.body})
}

// accepts reports whether the status of an instance allows the action. Every status of an entity allows
// a purge, the only action on entities.
func (a action) accepts(one instance) bool {
	return a.allows == "" || history.IsEntity(one.InstanceID) || slices.Contains(strings.Split(a.allows, ","), one.RuntimeStatus)
}

// wouldDo prints the instances of a dry run.
func (c bulk) wouldDo(a action, found []json.RawMessage) error {
	c.tell(fmt.Sprintf("Nothing was done. Instances that would be %s: %d", a.past, len(found)))
	return c.instances(found)
}

// many performs an action on each instance that the flags select and prints their number.
// It lists all instances before it changes the first.
func (c bulk) many(a action) error {
	if err := c.checkSelected(); err != nil {
		return err
	}
	if c.flags.status == "" {
		c.flags.status = a.defaults
	}
	var found []json.RawMessage
	var ids []string
	refused := 0
	r := &replays{command: c.command}
	if _, err := r.each(func(one instance) error {
		raw, err := json.Marshal(one)
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.flags.dryRun && !a.accepts(one) {
			refused++
			return err
		}
		ids, found = append(ids, one.InstanceID), append(found, raw)
		return err
	}); err != nil {
		return err
	}
	if c.flags.dryRun {
		if refused > 0 {
			c.tell(fmt.Sprintf("Instances whose status does not allow it: %d", refused))
		}
		return c.wouldDo(a, found)
	}
	return c.actOn(ids, a)
}

// actOn performs an action on instances and prints the number of successes. It prints each instance that
// fails or that the app refuses, and continues. It starts no new ones if the hub is unreachable or the
// context ends.
func (c bulk) actOn(ids []string, a action) error {
	defer c.working(c.verb)()
	var (
		tries                 attempts
		mu                    sync.Mutex // guards the variables below
		done, failed, refused int
	)
	_ = forEachConcurrently(ids, func(id string) error {
		if tries.stopped(c.ctx) {
			return nil
		}
		err := a.act(id)
		tries.add(err)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			done++
			return nil
		}
		switch exitCode(err) {
		case ExitNotFound, ExitRefused:
			refused++
		default:
			failed++
		}
		c.tell(fmt.Sprintf("instance %q: %s", id, strings.TrimSuffix(err.Error(), ".")))
		return nil
	})
	skipped := len(ids) - done - failed - refused
	err := c.report(a.past, done, refused, failed+skipped)
	switch text := fmt.Sprintf("%d of %d instances were not %s: %d failed, %d refused, %d not attempted", len(ids)-done, len(ids), a.past, failed, refused, skipped); {
	case tries.outage != nil && skipped+failed > 0:
		return errors.Join(err, fmt.Errorf("%s: %w", text, tries.outage))
	case failed > 0:
		return errors.Join(err, errors.New(text))
	case refused > 0:
		return errors.Join(err, fmt.Errorf("%d of %d instances were not %s: they do not exist, or their status does not allow it", refused, len(ids), a.past))
	}
	return err
}

// attempts decides when a command that runs on many instances stops: if the hub is unreachable, if
// maxConcurrent answers in a row have status 503, or if the context ends. A damaged instance causes one
// such answer.
type attempts struct {
	mu          sync.Mutex
	unavailable int   // answers with status 503 since the last other one
	outage      error // the reason to stop
}

// stopped reports whether the command skips the other instances.
func (a *attempts) stopped(ctx context.Context) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.outage == nil && ctx.Err() != nil {
		a.outage = &UnavailableError{ctx.Err()}
	}
	return a.outage != nil
}

// add records the result for one instance.
func (a *attempts) add(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unavailable++
	if exitCode(err) != ExitUnavailable {
		a.unavailable = 0
	}
	if _, unreachable := errors.AsType[*UnavailableError](err); unreachable || a.unavailable == maxConcurrent {
		a.outage = err
	}
}
