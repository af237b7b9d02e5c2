package handler

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
)

// A TriggerOption says more about a function: [Timeout], [FixedRetry],
// [ExponentialRetry], [Connection], [Property], and every [Input] and [Output].
type TriggerOption interface{ applyTrigger(*Trigger) }

// A TimerOption says more about a [Timer]: [RunOnStartup], [NoMonitor], and the
// options of other functions but Connection, since a timer has none.
type TimerOption interface{ applyTimer(*Trigger) }

// A BindingOption says more about an [Input] or [Output]: [Connection] and
// [Property].
type BindingOption interface{ applyBinding(*triggers.Binding) }

// Timeout bounds one run of a function, as a [time.Duration]. Its context ends
// then, and a run that goes on all the same has failed. Without it the bound is
// what host.json's functionTimeout leaves, or 30 minutes. It must be less than
// functionTimeout: what takes longer than that makes the host kill the program.
type Timeout time.Duration

func (d Timeout) applyTrigger(t *Trigger) { t.function.Timeout = time.Duration(d) }
func (d Timeout) applyTimer(t *Trigger)   { d.applyTrigger(t) }

// Connection is the name of the setting that says where the queue, the
// container or the hub of a binding is: a connection string, or the beginning of
// settings for an identity. Storage bindings have AzureWebJobsStorage if they
// are given none.
type Connection string

func (n Connection) applyTrigger(t *Trigger)          { n.applyBinding(&t.function.Source) }
func (n Connection) applyBinding(b *triggers.Binding) { b.Set("connection", string(n)) }

// Property sets a property of a binding in function.json, one that this package
// has no option for: Property("isSessionsEnabled", true). The value must be one
// that JSON can tell.
func Property(name string, value any) interface {
	TriggerOption
	TimerOption
	BindingOption
} {
	return property{name, value}
}

type property struct {
	name  string
	value any
}

func (p property) applyTrigger(t *Trigger)          { p.applyBinding(&t.function.Source) }
func (p property) applyTimer(t *Trigger)            { p.applyBinding(&t.function.Source) }
func (p property) applyBinding(b *triggers.Binding) { b.Set(p.name, p.value) }

type startupOption struct{}

func (startupOption) applyTimer(t *Trigger) { t.function.Source.Set("runOnStartup", true) }

// RunOnStartup runs a timer when the host starts, too. Instances that are added
// run it as well, so it is not for production.
var RunOnStartup TimerOption = startupOption{}

type monitorOption struct{}

func (monitorOption) applyTimer(t *Trigger) { t.function.Source.Set("useMonitor", false) }

// NoMonitor lets the host forget when a timer ran: what is missed while the app
// does not run is not made up for.
var NoMonitor TimerOption = monitorOption{}

// A retryOption sets the retry policy of a function.
type retryOption triggers.RetryPolicy

func (o *retryOption) applyTrigger(t *Trigger) { t.function.Retry = (*triggers.RetryPolicy)(o) }
func (o *retryOption) applyTimer(t *Trigger)   { o.applyTrigger(t) }

// FixedRetry runs a function that fails again, up to the given number of times,
// or without end if it is -1, with a pause before each. The host keeps that in
// mind only as long as it runs; a durable activity with a retry policy is the
// one that survives.
func FixedRetry(most int, pause time.Duration) interface {
	TriggerOption
	TimerOption
} {
	return &retryOption{Strategy: "fixedDelay", MaxRetryCount: most, DelayInterval: settings.FormatTimeSpan(pause)}
}

// ExponentialRetry is [FixedRetry] with a pause that grows from shortest to
// longest.
func ExponentialRetry(most int, shortest, longest time.Duration) interface {
	TriggerOption
	TimerOption
} {
	return &retryOption{
		Strategy: "exponentialBackoff", MaxRetryCount: most,
		MinimumInterval: settings.FormatTimeSpan(shortest), MaximumInterval: settings.FormatTimeSpan(longest),
	}
}
