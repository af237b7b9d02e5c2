package hubcli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// verbs lists all verbs in the order of the help text.
var verbs = []verb{
	{
		name: "start", args: []string{"ORCHESTRATOR"}, does: "Starts an instance and prints its ID", run: command.start,
		flags: func(f *flags) {
			f.set.StringVar(&f.id, "id", "", "`ID` of the instance; a new one by default")
			f.inputs("the input")
			f.set.StringVar(&f.version, "version", "", "`VERSION` of the instance")
			f.set.DurationVar(&f.wait, "wait", 0, "waits at most `TIME` for the end of the instance, such as 30s")
		},
	},
	{
		name: "get", args: []string{"ID"}, does: "Shows an instance", run: command.get,
		flags: func(f *flags) {
			f.set.BoolVar(&f.noInput, "no-input", false, "omits the input")
			f.set.BoolVar(&f.showHistory, "show-history", false, "shows the history, too")
		},
	},
	{
		name: "list", does: "Lists instances", run: command.list,
		flags: func(f *flags) {
			f.selects()
			f.set.BoolVar(&f.entities, "entities", false, "lists only entities")
			f.set.BoolVar(&f.showOutput, "show-output", false, "includes the outputs, with --output json")
			f.pages("instances")
		},
	},
	{
		name: "history", args: []string{"ID"}, does: "Shows the history of an instance", run: command.history,
		more: "durabletest.Replay reads the output of --output json, unless --no-input is set.",
		flags: func(f *flags) {
			f.set.BoolVar(&f.noInput, "no-input", false, "omits the inputs")
			f.set.BoolVar(&f.showOutput, "show-output", false, "shows the results of activities; --output json always has them")
		},
	},
	{
		name: "why", args: []string{"[ID]"}, does: "Shows the reasons why an instance is waiting, with the lines of its code",
		run:  func(c command) error { return (&replays{command: c}).why() },
		more: "With --stuck it groups the instances that have made no progress by their reasons.",
		flags: func(f *flags) {
			f.selects()
			f.set.BoolVar(&f.children, "children", false, "includes the children, and their children")
			f.set.BoolVar(&f.stuck, "stuck", false, "all instances without progress for --idle")
			f.set.DurationVar(&f.idle, "idle", time.Hour, "the `TIME` without progress for --stuck, such as 30m; default 1h")
		},
	},
	{
		name: "verify", args: []string{"[PATH]"}, does: "Replays running instances with the orchestrators of this program, and lists those that do not match",
		run: func(c command) error { return (&replays{command: c}).verify() },
		more: "It writes nothing and runs no activity. It exits with 1 if an instance does not match: run it with the new\n" +
			"program before a deployment. PATH is a file of record, or a folder of them, to read instead of the hub.",
		flags: func(f *flags) {
			f.selects()
			f.set.IntVar(&f.sample, "sample", 0, "at most `N` instances per orchestrator and version; 0 for all")
		},
	},
	{
		name: "record", args: []string{"[ID]"}, does: "Writes the histories of an instance, or of all that match, to files",
		run:  func(c command) error { return (&replays{command: c}).record() },
		more: "verify and durabletest.Replay read the files. They contain all payloads of the instances.",
		flags: func(f *flags) {
			f.selects()
			f.set.IntVar(&f.sample, "sample", 0, "at most `N` instances per orchestrator and version; 0 for all")
			f.set.StringVar(&f.dir, "dir", "histories", "the `FOLDER` to write to; default histories")
		},
	},
	{
		name: "tail", args: []string{"[ID]"}, does: "Shows new events of an instance, or all changes of status, until Ctrl+C", run: func(c command) error { return tail{c}.run() },
		more: "With an ID it shows new events of the history and ends with the instance. Without an ID it lists all instances\n" +
			"that match each time: use filters on a large hub. It holds a local file, so no app can start meanwhile.",
		flags: func(f *flags) {
			f.selects()
			f.set.DurationVar(&f.every, "every", 2*time.Second, "the `TIME` between two requests; default 2s")
		},
	},
	{
		name: "raise", args: []string{"[ID]", "EVENT"}, does: "Raises an event for an instance, or for all that match", run: func(c command) error { return bulk{c}.raise() },
		more: bulkHelp,
		flags: func(f *flags) {
			f.many()
			f.inputs("the payload of the event, null by default", "data")
		},
	},
	control("terminate", "Terminates an instance, or all that match"),
	control("suspend", "Suspends an instance, or all that match, until it is resumed"),
	control("resume", "Resumes a suspended instance, or all that match"),
	control("rewind", "Rewinds a failed instance, or all that match: the failed steps run again"),
	{
		name: "restart", args: []string{"[ID]"}, does: "Starts an instance again with the same input and prints the new ID, or all that match", run: func(c command) error { return bulk{c}.restart() },
		more: bulkHelp,
		flags: func(f *flags) {
			f.many()
			f.set.BoolVar(&f.sameID, "same-id", false, "replaces the instance, which must have ended")
		},
	},
	{
		name: "purge", args: []string{"[ID]"}, does: "Deletes an ended instance, or all that match", run: func(c command) error { return bulk{c}.purge() },
		more:  bulkHelp,
		flags: func(f *flags) { f.many() },
	},
	{
		name: "entity list", args: []string{"[NAME]"}, does: "Lists entities, or the entities with a name", run: func(c command) error { return entityCommand{c}.list() },
		flags: func(f *flags) {
			f.pages("entities")
			f.set.BoolVar(&f.showState, "state", false, "shows the states, too")
		},
	},
	{
		name: "entity get", args: []string{"NAME", keyArg}, does: "Shows the state of an entity", run: func(c command) error { return entityCommand{c}.get() },
		more: keyHelp,
	},
	{
		name: "entity signal", args: []string{"NAME", keyArg, "OPERATION"}, does: "Sends a signal to an entity, without waiting for the operation", run: func(c command) error { return entityCommand{c}.signal() },
		more: keyHelp,
		flags: func(f *flags) {
			f.inputs("the input of the operation", "data")
		},
	},
	{
		name: "console", does: "Serves the web console of the hub on this machine and prints its address", run: command.console,
		more: "Ctrl+C ends it. If a running app holds the local file, it prints the address of the app's own console, which\n" +
			"may ask for the key. Otherwise it holds the file, so no app can start meanwhile.",
	},
	{
		name: "crashes", does: "Shows the functions whose goroutines ended the app with a panic", run: command.crashes,
		more: "Work that did so twice is set aside until its instance is suspended and resumed. Each machine has its own\n" +
			"counts: run this where the app runs.",
		flags: func(f *flags) {
			f.set.BoolVar(&f.forget, "forget", false, "releases all work that is set aside, also while the app runs")
		},
	},
	{
		name: "retry-undecodable", does: "Moves undecodable messages that were set aside back into their queues", run: command.retryUndecodable,
	},
	{
		name: "delete", does: "Deletes the task hub and everything in it", run: command.deleteHub,
		flags: func(f *flags) {
			f.set.BoolVar(&f.yes, "yes", false, "confirms the deletion; required")
			f.set.BoolVar(&f.force, "force", false, "deletes a hub in Azure Storage even if a worker uses it")
		},
	},
	{
		name: "compact", does: "Makes the task hub as small as possible, in a local file or in partition logs", run: command.compact,
		more: "Stop the app first. An app compacts a mostly free local file when it opens it.",
	},
	{
		name: "drained", does: "Shows whether work is in flight, for example before a change of engines", run: drained,
		more: "It exits with 1 if work is in flight. Work is an instance that has not ended, a message in a queue, also a hidden one, or\n" +
			"a locked or busy entity. First stop all programs that start instances. It also exits with 1 if records cannot\n" +
			"be read, and for a local file, which does not report its messages.",
	},
	{
		name: "repair", does: "Finds missing and damaged blobs of a task hub in partition logs, and repairs what it can", run: command.repair,
		more: "Without --apply it writes nothing, and the app may run. It never deletes anything. It exits with 1 if problems\n" +
			"remain. If possible, first restore lost blobs from soft delete or a version.",
		flags: func(f *flags) {
			f.set.BoolVar(&f.apply, "apply", false, "repairs what can be repaired; stop the app first")
		},
	},
	{
		name: "copy", args: []string{"FROM", "TO"}, does: "Copies a task hub with all work in flight and compares the counts", run: command.copyHub,
		more: "FROM and TO are embedded, embedded:FILE, azurestorage, azurestorage:CONNECTION, partitionlog or\n" +
			"partitionlog:CONNECTION. TO must be empty. Stop the app first: an instance that runs on both hubs runs twice.",
		flags: func(f *flags) {
			f.copies()
			f.set.StringVar(&f.taskHub, "task-hub", "", "`NAME` of the hub in Azure Storage; by default the name in the configuration")
		},
	},
	{
		name: "backup", args: []string{"FILE"}, does: "Writes a backup of the task hub into a new local file", run: command.backup,
		more: "The app may run if the hub is in a local file or in partition logs. The app that holds a local file writes the backup on its\n" +
			"machine. Stop the app if the hub is in queues and tables. Restore the backup with copy embedded:FILE TO.",
		flags: (*flags).copies,
	},
	{
		name: "completion", args: []string{"SHELL"}, does: "Prints a completion script for bash, zsh or fish", run: func(c command) error { return completion{c}.run() },
		more: "For one session: source <(PROGRAM hub completion bash). For all sessions, put this line into .bashrc or .zshrc; fish\n" +
			"reads ~/.config/fish/completions/PROGRAM.fish. It completes every program with this name.",
	},
}

// bulkHelp describes how the flags of a bulk verb select instances.
const bulkHelp = "Without an ID, filters or --all select the instances. With an ID and filters, the instance must match.\n" +
	"--dry-run lists the instances and changes nothing."

// control returns a verb that changes an instance for a reason.
func control(name, does string) verb {
	return verb{
		name: name, args: []string{"[ID]"}, does: does, more: bulkHelp, run: func(c command) error { return bulk{c}.control() },
		flags: func(f *flags) {
			f.many()
			f.set.StringVar(&f.reason, "reason", "", "the reason, as `TEXT`; the history records it")
		},
	}
}

// errHelp and errVersion report that the arguments ask for the help text or the version.
var (
	errHelp    = errors.New("help")
	errVersion = errors.New("version")
)

// flags holds the flags of one verb.
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
	tags                                              []string // NAME or NAME=VALUE
}

func newFlags(v verb) *flags {
	f := &flags{verb: v, set: flag.NewFlagSet(v.name, flag.ContinueOnError)}
	f.set.SetOutput(io.Discard)
	f.set.StringVar(&f.output, "output", "table", "the `FORMAT`: table or json")
	if v.flags != nil {
		v.flags(f)
	}
	return f
}

// parse parses the flags in args, at any position, and returns the other arguments. Arguments after "--"
// are never flags.
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

// usage prints the help text of the verb.
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

// shown calls visit for each flag with a description. Former names of flags have no description.
func (f *flags) shown(visit func(*flag.Flag)) {
	f.set.VisitAll(func(one *flag.Flag) {
		if one.Usage != "" {
			visit(one)
		}
	})
}

// inputs defines the flags of a JSON input, described by does. It also defines their former names.
func (f *flags) inputs(does string, former ...string) {
	f.set.StringVar(&f.input, "input", "", does+", as `JSON`")
	f.set.StringVar(&f.inputFile, "input-file", "", "the `FILE` with the input; - is standard input")
	for _, name := range former {
		f.set.StringVar(&f.input, name, "", "")
		f.set.StringVar(&f.inputFile, name+"-file", "", "")
	}
}

// copies defines the flags of verbs that copy a hub.
func (f *flags) copies() {
	f.set.DurationVar(&f.wait, "wait", 45*time.Second, "the `TIME` to wait for workers to release the hubs; default 45s")
	f.set.BoolVar(&f.ignoreHidden, "ignore-hidden", false, "skips hidden messages that the histories do not explain")
}

// pages defines the flags that limit a list.
func (f *flags) pages(of string) {
	f.set.IntVar(&f.top, "top", 100, "at most `N` "+of+"; default 100")
	f.set.BoolVar(&f.all, "all", false, "lists all")
}

// many defines the flags of bulk verbs.
func (f *flags) many() {
	f.selects()
	f.set.BoolVar(&f.all, "all", false, "all instances in a suitable status")
	f.set.BoolVar(&f.dryRun, "dry-run", false, "lists the instances and changes nothing")
}

// selects defines the flags that select instances, including those by orchestrator and tag.
func (f *flags) selects() {
	f.filters()
	f.set.StringVar(&f.prefix, "prefix", "", "instances whose ID starts with `TEXT`")
	f.set.StringVar(&f.name, "name", "", "instances of the orchestrator `NAME`")
	f.set.Func("tag", "instances with the tag `NAME[=VALUE]`; repeat it to require several", func(text string) error {
		if name, _, _ := strings.Cut(text, "="); strings.TrimSpace(name) == "" {
			return errors.New("a tag needs a name")
		}
		f.tags = append(f.tags, text)
		return nil
	})
}

// filter reports whether a flag selects instances.
func (f *flags) filter() bool {
	return f.status != "" || f.prefix != "" || f.after != "" || f.before != "" || f.name != "" || len(f.tags) > 0
}

// filters defines the flags that select instances by status and creation time.
func (f *flags) filters() {
	f.set.StringVar(&f.status, "status", "", "instances in one of the statuses in `LIST`, such as Failed,Terminated")
	f.set.StringVar(&f.after, "created-after", "", "instances created at `TIME` or later, such as 2026-01-31T12:00:00Z")
	f.set.StringVar(&f.before, "created-before", "", "instances created at `TIME` or earlier")
}
