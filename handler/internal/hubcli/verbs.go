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
			f.set.StringVar(&f.input, "input", "", "the input, as `JSON`")
			f.set.StringVar(&f.inputFile, "input-file", "", "the `FILE` that has the input; - is standard input")
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
			f.filters()
			f.set.StringVar(&f.prefix, "prefix", "", "those whose ID begins with `TEXT`")
			f.set.IntVar(&f.top, "top", 100, "`N` instances at most")
			f.set.BoolVar(&f.all, "all", false, "all of them, however many")
		},
	},
	{
		name: "history", args: []string{"ID"}, does: "Shows the history of an instance", run: command.history,
		flags: func(f *flags) {
			f.set.BoolVar(&f.showOutput, "show-output", false, "with the results of activities")
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
		name: "raise", args: []string{"ID", "EVENT"}, does: "Sends an event to an instance", run: command.raise,
		flags: func(f *flags) {
			f.set.StringVar(&f.data, "data", "", "what the event carries, as `JSON`; null if it is not given")
			f.set.StringVar(&f.dataFile, "data-file", "", "the `FILE` that has it; - is standard input")
		},
	},
	control("terminate", "Ends an instance"),
	control("suspend", "Suspends an instance: nothing of it runs until it is resumed"),
	control("resume", "Lets a suspended instance go on"),
	control("rewind", "Takes back the failure of an instance: what failed is done again"),
	{
		name: "restart", args: []string{"ID"}, does: "Starts an instance again, with the same input, and prints the new ID", run: command.restart,
		flags: func(f *flags) {
			f.set.BoolVar(&f.sameID, "same-id", false, "under the same ID, if it has ended")
		},
	},
	{
		name: "purge", args: []string{"[ID]"}, does: "Deletes an instance that has ended, or all that match", run: command.purge,
		more: "Without an ID, --created-after, --created-before or --all must say which.",
		flags: func(f *flags) {
			f.filters()
			f.set.StringVar(&f.prefix, "prefix", "", "those whose ID begins with `TEXT`")
			f.set.BoolVar(&f.allEnded, "all", false, "all that have ended")
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
		name: "compact", does: "Makes the local file of the task hub as small as it can be", run: command.compact,
		more: "Stop the app first. A file of which most is free is also compacted when an app opens it.",
	},
	{
		name: "copy", args: []string{"FROM", "TO"}, does: "Copies a task hub with all that is under way, and counts what is there", run: command.copyHub,
		more: "FROM and TO are embedded, or embedded:FILE, or azurestorage, or azurestorage:CONNECTION.\n" +
			"TO must be empty. Stop the app first, and start it on TO: what runs on both runs twice.",
		flags: func(f *flags) {
			f.set.DurationVar(&f.wait, "wait", 45*time.Second, "how long to wait for workers to let go of the hubs, a `TIME` such as 45s")
			f.set.StringVar(&f.taskHub, "task-hub", "", "`NAME` of the hub in Azure Storage; that of the configuration if it is not given")
			f.set.BoolVar(&f.ignoreHidden, "ignore-hidden", false, "leaves behind what the queues hide for no known reason")
		},
	},
}

// control is a verb that does something to an instance for a reason.
func control(name, does string) verb {
	return verb{
		name: name, args: []string{"ID"}, does: does, run: command.control,
		flags: func(f *flags) { f.set.StringVar(&f.reason, "reason", "", "`TEXT` that says why") },
	}
}

// errHelp says that help was asked for.
var errHelp = errors.New("help")

// flags are the flags of one verb.
type flags struct {
	verb   verb
	set    *flag.FlagSet
	output string

	id, input, inputFile, version, reason, data, dataFile string
	status, prefix, after, before, taskHub, name, dir     string
	wait, idle                                            time.Duration
	top, sample                                           int
	all, noInput, showHistory, showOutput, sameID         bool
	yes, force, ignoreHidden, allEnded, forget            bool
	children, stuck                                       bool
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
	f.set.VisitAll(func(one *flag.Flag) {
		value, does := flag.UnquoteUsage(one)
		name := strings.TrimRight("--"+one.Name+" "+value, " ")
		say(w, "  %-28s %s\n", name, does)
	})
}

// selects are the flags that select live instances.
func (f *flags) selects() {
	f.filters()
	f.set.StringVar(&f.prefix, "prefix", "", "those whose ID begins with `TEXT`")
	f.set.StringVar(&f.name, "name", "", "those of the orchestrator `NAME`")
}

// filters are the flags that select instances.
func (f *flags) filters() {
	f.set.StringVar(&f.status, "status", "", "those in one of the statuses in `LIST`, such as Failed,Terminated")
	f.set.StringVar(&f.after, "created-after", "", "those created at `TIME` or later, such as 2026-01-31T12:00:00Z")
	f.set.StringVar(&f.before, "created-before", "", "those created at `TIME` or earlier")
}
