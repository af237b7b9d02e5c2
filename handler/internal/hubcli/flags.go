package hubcli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// errHelp says that help was asked for.
var errHelp = errors.New("help")

// flags are the flags of one verb.
type flags struct {
	verb   verb
	set    *flag.FlagSet
	output string

	id, input, inputFile, version, reason, data, dataFile string
	status, prefix, after, before, taskHub                string
	wait                                                  time.Duration
	top                                                   int
	all, noInput, showHistory, showOutput, sameID         bool
	yes, force, ignoreHidden, allEnded, forget            bool
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

// filters are the flags that select instances.
func (f *flags) filters() {
	f.set.StringVar(&f.status, "status", "", "those in one of the statuses in `LIST`, such as Failed,Terminated")
	f.set.StringVar(&f.after, "created-after", "", "those created at `TIME` or later, such as 2026-01-31T12:00:00Z")
	f.set.StringVar(&f.before, "created-before", "", "those created at `TIME` or earlier")
}
