package replay

// An Outcome is the result of an episode.
type Outcome struct {
	// Actions are the new actions to record, in program order. A *Complete is the last.
	Actions []Action
	// Steps are the steps to run, in program order. They are recorded when they have ended: the
	// events of a later episode have their TaskScheduled directly before the completion. A step
	// that runs at most once has a TaskScheduled and a [history.NewStepStart] in an episode before
	// it runs. After a replay, Steps has all unrecorded steps.
	Steps []*RunStep
	// ReadsTime is set if the code has read the time of the episode or a UUID. A repetition of
	// the episode would decide otherwise.
	ReadsTime bool
	// CustomStatus is the last status set in any episode, as JSON text; nil if none was set.
	CustomStatus *string
	// Aliases are answers of entities under other names than the recorded requests expect.
	Aliases []Alias
	// Patched lists the changes of the code that take effect in this episode; see
	// [patches.Patched].
	Patched []string
}
