package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// An action is an operation on instances.
type action struct {
	Name      string
	Past      string // past participle, such as "terminated"
	Says      string // description
	Option    string // label of the check box; "" if it has none
	HasReason bool
	IsDanger  bool
	// Statuses are the statuses that allow the action.
	Statuses []history.RuntimeStatus

	// run performs the action. note is additional text for the notice.
	run func(ctx context.Context, c *durable.Client, id durable.InstanceID, how actionOptions) (note string, err error)
}

// actionOptions holds the options of an action.
type actionOptions struct {
	Reason string
	Option bool
}

// Statuses of instances that have not ended, and of those that have.
var (
	liveStatuses  = []history.RuntimeStatus{history.Pending, history.Running, history.ContinuedAsNew, history.Suspended}
	endedStatuses = []history.RuntimeStatus{history.Completed, history.Failed, history.Terminated, history.Canceled}
)

var actions = []action{
	{
		Name: "suspend", Past: "suspended", Says: "The instance does not run until it is resumed.", HasReason: true,
		Statuses: []history.RuntimeStatus{history.Pending, history.Running, history.ContinuedAsNew},
		run: func(ctx context.Context, c *durable.Client, id durable.InstanceID, how actionOptions) (string, error) {
			return "", c.Suspend(ctx, id, how.Reason)
		},
	},
	{
		Name: "resume", Past: "resumed", Says: "The suspended instance continues.", HasReason: true,
		Statuses: []history.RuntimeStatus{history.Suspended},
		run: func(ctx context.Context, c *durable.Client, id durable.InstanceID, how actionOptions) (string, error) {
			return "", c.Resume(ctx, id, how.Reason)
		},
	},
	{
		Name: "terminate", Past: "terminated", Says: "The instance ends at once. The reason becomes its output. Running activities continue.", HasReason: true, IsDanger: true,
		Option: "also its children", Statuses: liveStatuses,
		run: func(ctx context.Context, c *durable.Client, id durable.InstanceID, how actionOptions) (string, error) {
			if how.Option {
				return "", terminateFamily(ctx, c, id, how.Reason)
			}
			return "", c.Terminate(ctx, id, how.Reason)
		},
	},
	{
		Name: "rewind", Past: "rewound", Says: "The failed steps run again. Completed steps keep their results.", HasReason: true,
		Statuses: []history.RuntimeStatus{history.Failed},
		run: func(ctx context.Context, c *durable.Client, id durable.InstanceID, how actionOptions) (string, error) {
			return "", c.Rewind(ctx, id, how.Reason)
		},
	},
	{
		Name: "restart", Past: "restarted", Says: "The same orchestrator starts with the same input, under a new ID.",
		Option: "use the same ID and replace the instance", Statuses: endedStatuses,
		run: func(ctx context.Context, c *durable.Client, id durable.InstanceID, how actionOptions) (string, error) {
			var opts []durable.StartOption
			if how.Option {
				opts = append(opts, id)
			}
			restarted, err := c.Restart(ctx, id, opts...)
			return fmt.Sprintf("The new instance is %s.", restarted), err
		},
	},
	{
		Name: "purge", Past: "purged", Says: "The state, the history and the payloads are deleted permanently.", IsDanger: true,
		Option: "also its children", Statuses: endedStatuses,
		run: func(ctx context.Context, c *durable.Client, id durable.InstanceID, how actionOptions) (string, error) {
			var opts []durable.PurgeOption
			if how.Option {
				opts = append(opts, durable.Recursive)
			}
			_, err := c.Purge(ctx, id, opts...)
			return "", err
		},
	},
}

// familyTime limits the termination of an instance with its children, which waits until a worker has ended
// the instance. Azure limits a request to 230 s. Without a worker, the two requests that terminate the
// instance itself finish within this time.
const familyTime = 2 * taskhub.RequestTimeout

// errNotEnded is the error of a termination that reached familyTime. The message is a sentence.
var errNotEnded = web.AnswerWith(http.StatusGatewayTimeout, web.ErrorBody{
	Message: "Some of its children may still run, because no worker ended their parent within " +
		strconv.Itoa(int(familyTime/time.Second)) + " seconds. Start a worker, then terminate the remaining children.",
})

// terminateFamily terminates an instance and its children within [familyTime].
func terminateFamily(ctx context.Context, c *durable.Client, id durable.InstanceID, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, familyTime)
	defer cancel()
	err := c.Terminate(ctx, id, reason, durable.Recursive)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errNotEnded
	}
	return err
}

// actionsIn returns the actions that at least one of the statuses allows, or all actions if statuses is
// empty.
func actionsIn(statuses []history.RuntimeStatus) (possible []action) {
	for _, a := range actions {
		if len(statuses) == 0 || slices.ContainsFunc(statuses, func(s history.RuntimeStatus) bool { return slices.Contains(a.Statuses, s) }) {
			possible = append(possible, a)
		}
	}
	return possible
}

// actionNamed returns the action with a name.
func actionNamed(name string) (*action, error) {
	i := slices.IndexFunc(actions, func(a action) bool { return a.Name == name })
	if i < 0 {
		return nil, web.BadRequest("There is no action %q.", name)
	}
	return &actions[i], nil
}

// act answers POST instance/act: it performs an action on one instance.
func act(v *visit) error {
	a, err := actionNamed(v.value("action"))
	if err != nil {
		return err
	}
	id := durable.InstanceID(v.value("id"))
	note, err := a.run(v.Request().Context(), v.hub.Client, id, actionOptions{v.value("reason"), v.value("option") != ""})
	if state, ok := errors.AsType[*durable.InstanceStateError](err); ok {
		return web.AnswerWith(http.StatusConflict, web.ErrorBody{Message: fmt.Sprintf(
			"The instance is %s; to %s it, it must be %s.", state.Status, a.Name, a.StatusList(),
		)})
	}
	isPartial := errors.Is(err, errNotEnded)
	if err != nil && !isPartial {
		return err
	}
	to, notice := instancePath(id), "The instance is "+a.Past+"."
	switch {
	case a.Name == "purge":
		to, notice = "instances", "Instance "+string(id)+" is purged."
	case note != "":
		notice += " " + note
	case a.HasReason:
		notice = "The instance will be " + a.Past + " when its worker handles the request."
		if isPartial {
			notice += " " + err.Error()
		}
	}
	return v.done(to, notice)
}

// raise answers POST instance/raise: it raises an event.
func raise(v *visit) error {
	id, name := durable.InstanceID(v.value("id")), v.value("event")
	if name == "" || len(name) > web.MaxName {
		return web.BadRequest("The name of an event has %d bytes; want 1 to %d.", len(name), web.MaxName)
	}
	payload, err := web.ParseJSON([]byte(v.value("payload")), func(err error) error {
		return web.BadRequest("The payload is not JSON: %v. A text needs quotes.", err)
	})
	if err != nil {
		return err
	}
	if payload == nil {
		payload = []byte("null")
	}
	if err := v.hub.Client.RaiseEvent(v.Request().Context(), id, name, payload); err != nil {
		return err
	}
	return v.done(instancePath(id), "The event was sent.")
}

// instancePath returns the path of an instance's page, relative to the console.
func instancePath(id durable.InstanceID) string {
	return "instance?" + instanceQuery(string(id))
}

// Title returns the name with a capital letter.
func (a action) Title() string { return strings.ToUpper(a.Name[:1]) + a.Name[1:] }

// StatusList lists the statuses that allow the action, as text.
func (a action) StatusList() string { return statusList(a.Statuses) }

// statusList lists statuses as text.
func statusList(all []history.RuntimeStatus) string {
	text := ""
	for i, s := range all {
		switch {
		case i > 0 && i == len(all)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += s.String()
	}
	return text
}
