package hubcli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// verbs are all there are, in the order of the help.
var verbs = []verb{
	{
		name: "start", args: []string{"ORCHESTRATOR"}, does: "Starts an instance and prints its ID", run: command.start,
		flags: func(f *flags) {
			f.set.StringVar(&f.id, "id", "", "`ID` of the instance; a new one if it is not given")
			f.inputs("the input")
			f.set.StringVar(&f.version, "version", "", "`VERSION` of the instance")
			f.set.DurationVar(&f.wait, "wait", 0, "waits for the instance to end, for at most this `TIME`, such as 30s")
		},
	},
	{
		name: "get", args: []string{"ID"}, does: "Shows an instance", run: command.get,
		flags: func(f *flags) {
			f.set.BoolVar(&f.noInput, "no-input", false, "leaves the input out")
			f.set.BoolVar(&f.showHistory, "show-history", false, "with the history")
		},
	},
	{
		name: "list", does: "Lists instances", run: command.list,
		flags: func(f *flags) {
			f.selects()
			f.set.BoolVar(&f.entities, "entities", false, "entities only, with what they are stored as")
			f.set.BoolVar(&f.showOutput, "show-output", false, "with the outputs, in --output json")
			f.pages("instances")
		},
	},
	{
		name: "history", args: []string{"ID"}, does: "Shows the history of an instance", run: command.history,
		more: "With --output json and without --no-input, durabletest.Replay reads the history.",
		flags: func(f *flags) {
			f.set.BoolVar(&f.noInput, "no-input", false, "omits the inputs")
			f.set.BoolVar(&f.showOutput, "show-output", false, "with the results of activities; --output json always has them")
		},
	},
	{
		name: "why", args: []string{"[ID]"}, does: "Shows what an instance waits for, and at which lines of its code",
		run:  func(c command) error { return (&replays{command: c}).why() },
		more: "With --stuck it groups the instances that have not moved for a time by what they wait for.",
		flags: func(f *flags) {
			f.selects()
			f.set.BoolVar(&f.children, "children", false, "also what the sub-orchestrations wait for, and theirs")
			f.set.BoolVar(&f.stuck, "stuck", false, "all instances that have not moved for a time")
			f.set.DurationVar(&f.idle, "idle", time.Hour, "how long that is, a `TIME` such as 30m")
		},
	},
	{
		name: "verify", args: []string{"[PATH]"}, does: "Replays live instances with the orchestrators of this program, and shows which cannot go on",
		run: func(c command) error { return (&replays{command: c}).verify() },
		more: "Nothing is written, and no activity runs. It exits with 1 if an instance cannot go on: run it with the\n" +
			"new program before a deployment. PATH is a file that record wrote, or a folder of them; then the hub is not read.",
		flags: func(f *flags) {
			f.selects()
			f.set.IntVar(&f.sample, "sample", 0, "`N` instances of each orchestrator and version at most; 0 is all")
		},
	},
	{
		name: "record", args: []string{"[ID]"}, does: "Writes the history of an instance, or of all that match, into files",
		run:  func(c command) error { return (&replays{command: c}).record() },
		more: "The files are for verify, and for durabletest.Replay. They have all payloads of the instances.",
		flags: func(f *flags) {
			f.selects()
			f.set.IntVar(&f.sample, "sample", 0, "`N` instances of each orchestrator and version at most; 0 is all")
			f.set.StringVar(&f.dir, "dir", "histories", "the `FOLDER` to write to")
		},
	},
	{
		name: "tail", args: []string{"[ID]"}, does: "Shows what happens to an instance, or which change their status, until Ctrl+C", run: func(c command) error { return tail{c}.run() },
		more: "With an ID it shows the events of the history as they come, and ends with the instance. Without one it asks\n" +
			"for all that match each time: on a large hub say which. No app can start on a hub file that it has meanwhile.",
		flags: func(f *flags) {
			f.selects()
			f.set.DurationVar(&f.every, "every", 2*time.Second, "asks once in this `TIME`")
		},
	},
	{
		name: "raise", args: []string{"[ID]", "EVENT"}, does: "Sends an event to an instance, or to all that match", run: func(c command) error { return bulk{c}.raise() },
		more: whichOfMany,
		flags: func(f *flags) {
			f.many()
			f.inputs("the payload of the event, null by default", "data")
		},
	},
	control("terminate", "Ends an instance, or all that match"),
	control("suspend", "Suspends an instance, or all that match: nothing of it runs until it is resumed"),
	control("resume", "Lets a suspended instance go on, or all that match"),
	control("rewind", "Takes back the failure of an instance, or of all that match: what failed is done again"),
	{
		name: "restart", args: []string{"[ID]"}, does: "Starts an instance again, with the same input, and prints the new ID, or all that match", run: func(c command) error { return bulk{c}.restart() },
		more: whichOfMany,
		flags: func(f *flags) {
			f.many()
			f.set.BoolVar(&f.sameID, "same-id", false, "under the same ID, if it has ended")
		},
	},
	{
		name: "purge", args: []string{"[ID]"}, does: "Deletes an instance that has ended, or all that match", run: func(c command) error { return bulk{c}.purge() },
		more:  whichOfMany,
		flags: func(f *flags) { f.many() },
	},
	{
		name: "entity list", args: []string{"[NAME]"}, does: "Lists entities, or those of a name", run: func(c command) error { return entityCommand{c}.list() },
		flags: func(f *flags) {
			f.pages("entities")
			f.set.BoolVar(&f.showState, "state", false, "with their states")
		},
	},
	{
		name: "entity get", args: []string{"NAME", "KEY"}, does: "Shows the state of an entity", run: func(c command) error { return entityCommand{c}.get() },
	},
	{
		name: "entity signal", args: []string{"NAME", "KEY", "OPERATION"}, does: "Has an entity perform an operation, and does not wait for it", run: func(c command) error { return entityCommand{c}.signal() },
		flags: func(f *flags) {
			f.inputs("the input of the operation", "data")
		},
	},
	{
		name: "console", does: "Serves the web console of the hub on this machine, and prints its address", run: command.console,
		more: "Ctrl+C ends it. If a running app has the hub's file, the address is that of the app's own console, which asks\n" +
			"for the key if there is one. Else no app can start on the file meanwhile.",
	},
	{
		name: "crashes", does: "Shows what has ended the app with a panic on a goroutine of its own", run: command.crashes,
		more: "What has done so twice is set aside, until its instance is suspended and resumed. It is counted on each\n" +
			"machine: run this where the app runs.",
		flags: func(f *flags) {
			f.set.BoolVar(&f.forget, "forget", false, "takes up again all that is set aside, also while the app runs")
		},
	},
	{
		name: "retry-undecodable", does: "Puts messages that could not be decoded and were set aside back into their queues", run: command.retryUndecodable,
	},
	{
		name: "delete", does: "Deletes the task hub with all that is in it", run: command.deleteHub,
		flags: func(f *flags) {
			f.set.BoolVar(&f.yes, "yes", false, "says that this is meant; nothing happens without it")
			f.set.BoolVar(&f.force, "force", false, "though a worker has the hub, in Azure Storage")
		},
	},
	{
		name: "compact", does: "Makes the task hub as small as possible, in a local file or in partition logs", run: command.compact,
		more: "Stop the app first. A local file of which most is free is also compacted when an app opens it.",
	},
	{
		name: "drained", does: "Shows whether work is in flight, for example before a change of engines", run: drained,
		more: "It exits with 1 if there is any: an instance that has not ended, a message in a queue, also a hidden one, or an\n" +
			"entity that is locked or has queued operations. First stop all programs that start instances.",
	},
	{
		name: "repair", does: "Looks for blobs of a task hub in partition logs that have vanished, and repairs what it can", run: command.repair,
		more: "Without --apply it writes nothing, and the app may run. It deletes nothing in any case. It exits with 1 if problems are\n" +
			"left. Restore lost blobs first if you can, from soft delete, a version or a backup.",
		flags: func(f *flags) {
			f.set.BoolVar(&f.apply, "apply", false, "repairs what can be repaired; stop the app first")
		},
	},
	{
		name: "copy", args: []string{"FROM", "TO"}, does: "Copies a task hub with all that is under way, and counts what is there", run: command.copyHub,
		more: "FROM and TO are embedded, or embedded:FILE, or azurestorage, or partitionlog, or each of the two with :CONNECTION.\n" +
			"TO must be empty. Stop the app first, and start it on TO: what runs on both runs twice.",
		flags: func(f *flags) {
			f.copies()
			f.set.StringVar(&f.taskHub, "task-hub", "", "`NAME` of the hub in Azure Storage; that of the configuration if it is not given")
		},
	},
	{
		name: "backup", args: []string{"FILE"}, does: "Writes a backup of the task hub into a new local file", run: command.backup,
		more: "The app may run if the hub is in a local file or in partition logs. The app that has a local file writes the backup, on its\n" +
			"machine. Stop the app if the hub is in queues and tables. Restore the backup with copy embedded:FILE TO.",
		flags: (*flags).copies,
	},
	{
		name: "completion", args: []string{"SHELL"}, does: "Prints a script by which bash, zsh or fish completes these commands", run: func(c command) error { return completion{c}.run() },
		more: "For one session: source <(PROGRAM hub completion bash). For all, put that line into .bashrc or .zshrc; fish reads\n" +
			"~/.config/fish/completions/PROGRAM.fish. It completes the program by its name, wherever it is.",
	},
}

// whichOfMany says how a verb that takes one ID is told of many.
const whichOfMany = "Without an ID, filters or --all select the instances. With an ID and filters, the instance must match.\n" +
	"--dry-run shows the instances and changes nothing."

// control is a verb that does something to an instance for a reason.
func control(name, does string) verb {
	return verb{
		name: name, args: []string{"[ID]"}, does: does, more: whichOfMany, run: func(c command) error { return bulk{c}.control() },
		flags: func(f *flags) {
			f.many()
			f.set.StringVar(&f.reason, "reason", "", "`TEXT` that says why")
		},
	}
}

// errHelp and errVersion say that help was asked for, or the program's version.
var (
	errHelp    = errors.New("help")
	errVersion = errors.New("version")
)

// flags are the flags of one verb.
type flags struct {
	verb   verb
	set    *flag.FlagSet
	output string

	id, input, inputFile, version, reason             string
	status, prefix, after, before, taskHub, name, dir string
	wait, idle                                        time.Duration
	top, sample                                       int
	all, noInput, showHistory, showOutput, sameID     bool
	yes, force, ignoreHidden, forget, apply           bool
	children, stuck, entities, showState, dryRun      bool
	every                                             time.Duration
	tags                                              []string // each NAME or NAME=VALUE
}

func newFlags(v verb) *flags {
	f := &flags{verb: v, set: flag.NewFlagSet(v.name, flag.ContinueOnError)}
	f.set.SetOutput(io.Discard)
	f.set.StringVar(&f.output, "output", "table", "prints in `FORMAT`, table or json")
	if v.flags != nil {
		v.flags(f)
	}
	return f
}

// parse reads flags wherever they stand, and returns the other arguments. After
// "--" there are no more flags.
func (f *flags) parse(args []string) (given []string, err error) {
	if len(args) > 0 && args[0] == "--version" && f.set.Lookup("version") == nil {
		return nil, errVersion
	}
	for len(args) > 0 {
		if err := f.set.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, errHelp
		} else if err != nil {
			return nil, usageError(strings.TrimSuffix(err.Error(), "."))
		}
		rest := f.set.Args()
		if ended := len(args) - len(rest); ended > 0 && args[ended-1] == "--" {
			given = append(given, rest...)
			break
		}
		if len(rest) == 0 {
			break
		}
		given, args = append(given, rest[0]), rest[1:]
	}
	if f.output != "table" && f.output != "json" {
		return nil, usageError(fmt.Sprintf("--output is %q; want table or json", f.output))
	}
	return given, nil
}

// usage writes what the verb does and takes.
func (f *flags) usage(w io.Writer, program string) {
	say(w, "Usage: %s\n\n%s.\n", strings.Join(append([]string{program, f.verb.name}, f.verb.args...), " "), f.verb.does)
	if f.verb.more != "" {
		say(w, "%s\n", f.verb.more)
	}
	say(w, "\n")
	f.shown(func(one *flag.Flag) {
		value, does := flag.UnquoteUsage(one)
		name := strings.TrimRight("--"+one.Name+" "+value, " ")
		say(w, "  %-28s %s\n", name, does)
	})
}

// shown calls visit with each flag that has a description. A former name of a flag has none.
func (f *flags) shown(visit func(*flag.Flag)) {
	f.set.VisitAll(func(one *flag.Flag) {
		if one.Usage != "" {
			visit(one)
		}
	})
}

// inputs are the flags of a JSON input, which they describe with does. The verb also accepts
// their former names.
func (f *flags) inputs(does string, former ...string) {
	f.set.StringVar(&f.input, "input", "", does+", as `JSON`")
	f.set.StringVar(&f.inputFile, "input-file", "", "the `FILE` with the input; - is standard input")
	for _, name := range former {
		f.set.StringVar(&f.input, name, "", "")
		f.set.StringVar(&f.inputFile, name+"-file", "", "")
	}
}

// copies are the flags of a copy of a hub that no worker may have meanwhile.
func (f *flags) copies() {
	f.set.DurationVar(&f.wait, "wait", 45*time.Second, "how long to wait for workers to let go of the hubs, a `TIME` such as 45s")
	f.set.BoolVar(&f.ignoreHidden, "ignore-hidden", false, "leaves behind what the queues hide for no known reason")
}

// pages are the flags that say how much is listed.
func (f *flags) pages(of string) {
	f.set.IntVar(&f.top, "top", 100, "`N` "+of+" at most")
	f.set.BoolVar(&f.all, "all", false, "all of them, however many")
}

// many are the flags of what is done to one instance or to all that they select.
func (f *flags) many() {
	f.selects()
	f.set.BoolVar(&f.all, "all", false, "all that it can be done to")
	f.set.BoolVar(&f.dryRun, "dry-run", false, "shows which, and does nothing")
}

// selects are the flags that select instances, by their orchestrator and tags, too.
func (f *flags) selects() {
	f.filters()
	f.set.StringVar(&f.prefix, "prefix", "", "those whose ID begins with `TEXT`")
	f.set.StringVar(&f.name, "name", "", "those of the orchestrator `NAME`")
	f.set.Func("tag", "those with the tag `NAME[=VALUE]`; given again, with each of them", func(text string) error {
		if name, _, _ := strings.Cut(text, "="); strings.TrimSpace(name) == "" {
			return errors.New("a tag needs a name")
		}
		f.tags = append(f.tags, text)
		return nil
	})
}

// filter reports whether a flag that selects instances is set.
func (f *flags) filter() bool {
	return f.status != "" || f.prefix != "" || f.after != "" || f.before != "" || f.name != "" || len(f.tags) > 0
}

// filters are the flags that select instances.
func (f *flags) filters() {
	f.set.StringVar(&f.status, "status", "", "those in one of the statuses in `LIST`, such as Failed,Terminated")
	f.set.StringVar(&f.after, "created-after", "", "those created at `TIME` or later, such as 2026-01-31T12:00:00Z")
	f.set.StringVar(&f.before, "created-before", "", "those created at `TIME` or earlier")
}
