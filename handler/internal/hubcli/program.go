package hubcli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// Codes that a program exits with.
const (
	ExitOK          = 0
	ExitFailed      = 1 // it did not work; what is on standard error says why
	ExitUsage       = 2 // the arguments make no sense
	ExitNotFound    = 3 // there is no such instance, entity or task hub
	ExitRefused     = 4 // the instance is not in a state for it or does not match the filters, or an ID is taken
	ExitUnavailable = 5 // the hub is out of reach, or in use
)

// A Target is a management API that can be asked.
type Target struct {
	Client *http.Client
	Base   string // its URL, without a slash at the end
	Key    string // what it asks for; may be empty
	// Close lets go of it. It may be nil.
	Close func() error
}

// A CopyRequest says what to copy.
type CopyRequest struct {
	From, To     string
	TaskHub      string        // in Azure Storage; empty: that of the configuration
	Wait         time.Duration // how long to wait for workers to end
	IgnoreHidden bool
	Running      bool         // copies a hub in partition logs while workers use it
	Progress     func(string) // reports progress
}

// BackedUp is the result of a backup: its file, the size of the file, and how long no worker could
// use the hub.
type BackedUp struct {
	Path  string  `json:"backup"`
	Bytes int64   `json:"bytes"`
	Pause float64 `json:"pauseSeconds"`
}

// ErrAskApp is the error of a backup that the management API of the hub writes.
var ErrAskApp = errors.New("the management API writes the backup")

// A DeleteRequest says how to delete a hub.
type DeleteRequest struct {
	Force bool         // though a worker has it
	Warn  func(string) // warns of the consequences
}

// Compacted is the result of a compaction: which hub or file, and its sizes in bytes.
type Compacted struct {
	Path   string `json:"compacted"`
	Before int64  `json:"bytesBefore"`
	After  int64  `json:"bytesAfter"`
}

// Repaired is the result of a look for damage of a hub, and of its repair.
type Repaired struct {
	Hub      string          `json:"hub"`
	Blobs    [][]string      `json:"-"` // a table of what exists
	Report   any             `json:"report"`
	Problems []RepairProblem `json:"-"`
}

// RepairProblem is damage of a hub.
type RepairProblem struct {
	What, Lost string
	Repair     string // what the repair does; empty if there is none
	Repaired   bool
}

// A Program is the command line.
type Program struct {
	Name           string // it is called by, such as "app hub"
	Version        string // of the program
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal says that a person reads Stdout: tables have columns, which are cut, and
	// with Colors colours. Else cells are whole, with tabs between them.
	Terminal, Colors bool

	// Open reaches the hub that the app's configuration names.
	Open func(ctx context.Context) (*Target, error)
	// Delete deletes that hub and returns what it was.
	Delete func(ctx context.Context, r DeleteRequest) (string, error)
	// Compact makes that hub as small as possible.
	Compact func(ctx context.Context) (Compacted, error)
	// Repair looks for damage of that hub, and with apply repairs what it can. With an error it may
	// return what was done before.
	Repair func(ctx context.Context, apply bool) (Repaired, error)
	// Copy copies one hub to another and returns how much it was, which is
	// written as JSON and, by its String, as text.
	Copy func(ctx context.Context, r CopyRequest) (fmt.Stringer, error)
	// Backup writes a backup of that hub into a new local file. It fails with [ErrAskApp] if the
	// hub is in a local file.
	Backup func(ctx context.Context, r CopyRequest) (BackedUp, error)
	// Verify reports whether an instance can go on with the program's orchestrators. The
	// history is the management API's.
	Verify func(history []byte) error
	// Console serves the hub's web console on this machine until ctx ends, and shows its
	// address.
	Console func(ctx context.Context, show func(address string) error) error
	// Crashes returns the functions that crashed the app on this machine. With forget it
	// removes the record.
	Crashes func(forget bool) ([]durable.Crash, error)
}

// A verb is one of the things that can be done.
type verb struct {
	name  string
	args  []string // what follows it, by name
	does  string
	more  string // for its own help
	flags func(f *flags)
	run   func(c command) error
}

// Run does what the arguments say and returns the code to exit with. Secrets in
// what it says on standard error are masked.
func (p Program) Run(ctx context.Context, args []string) int {
	p.Stderr = secrets.Writer(p.Stderr)
	if len(args) == 0 || isHelp(args[0]) {
		out := p.Stdout
		code := ExitOK
		if len(args) == 0 {
			out, code = p.Stderr, ExitUsage
		}
		p.usage(out)
		return code
	}
	if isVersion(args[0]) {
		say(p.Stdout, "%s\n", p.Version)
		return ExitOK
	}
	var group []string // the verbs of which args has the first word only
	for _, v := range verbs {
		words := strings.Fields(v.name)
		if len(args) >= len(words) && slices.Equal(words, args[:len(words)]) {
			return p.runVerb(ctx, v, args[len(words):])
		}
		if words[0] == args[0] {
			group = append(group, v.name)
		}
	}
	switch {
	case len(group) > 0 && len(args) > 1 && isHelp(args[1]):
		say(p.Stdout, "Verbs: %s. See %s VERB --help.\n", strings.Join(group, ", "), p.Name)
		return ExitOK
	case len(group) > 0:
		say(p.Stderr, "%s: which of %s? See %[1]s --help.\n", p.Name, strings.Join(group, ", "))
	default:
		say(p.Stderr, "%s: there is no %q. See %[1]s --help.\n", p.Name, args[0])
	}
	return ExitUsage
}

func isVersion(arg string) bool { return arg == "--version" || arg == "-version" || arg == "version" }

func isHelp(arg string) bool {
	return arg == "--help" || arg == "-help" || arg == "-h" || arg == "help"
}

func (p Program) runVerb(ctx context.Context, v verb, args []string) int {
	f := newFlags(v)
	given, err := f.parse(args)
	switch {
	case errors.Is(err, errHelp):
		f.usage(p.Stdout, p.Name)
		return ExitOK
	case errors.Is(err, errVersion):
		say(p.Stdout, "%s\n", p.Version)
		return ExitOK
	case err == nil:
		err = v.checkArgs(given)
	}
	if err != nil {
		say(p.Stderr, "%s %s: %v. See %[1]s %[2]s --help.\n", p.Name, v.name, err)
		return ExitUsage
	}
	c := &call{ctx: ctx, program: p, verbs: verbs, verb: v.name, flags: f, args: given}
	if err = (command{c}).checkNamed(v); err == nil {
		err = v.run(command{c})
	}
	if c.target != nil && c.target.Close != nil {
		err = errors.Join(err, c.target.Close())
	}
	if err != nil {
		say(p.Stderr, "%s %s: %v\n", p.Name, v.name, err)
		return exitCode(err)
	}
	return ExitOK
}

// checkArgs checks how many arguments there are. A name in brackets may be
// left out.
func (v verb) checkArgs(given []string) error {
	var needed []string
	for _, name := range v.args {
		if !strings.HasPrefix(name, "[") {
			needed = append(needed, name)
		}
	}
	if len(given) < len(needed) {
		return usageError(needed[len(given)] + " is missing")
	}
	if len(given) > len(v.args) {
		return usageError(fmt.Sprintf("%q is one argument too many", given[len(v.args)]))
	}
	if slices.Contains(given, "") {
		return usageError("an argument is empty")
	}
	return nil
}

// A usageError says what is wrong with the arguments.
type usageError string

func (e usageError) Error() string { return string(e) }

// An answerError is an answer of the management API that is an error.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string { return e.text }

// refusal returns the error for an instance that is not in a state for a verb.
func refusal(text string) error { return &answerError{http.StatusPreconditionFailed, text} }

// An UnavailableError says that the hub cannot be reached, or that another process uses it.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns why.
func (e *UnavailableError) Unwrap() error { return e.Err }

func exitCode(err error) int {
	if _, usage := errors.AsType[usageError](err); usage {
		return ExitUsage
	}
	if _, unavailable := errors.AsType[*UnavailableError](err); unavailable {
		return ExitUnavailable
	}
	if errors.Is(err, fs.ErrNotExist) { // the file of the task hub
		return ExitNotFound
	}
	if answer, ok := errors.AsType[*answerError](err); ok {
		switch answer.status {
		case http.StatusBadRequest:
			return ExitUsage
		case http.StatusNotFound:
			return ExitNotFound
		case http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed:
			return ExitRefused
		case http.StatusServiceUnavailable:
			return ExitUnavailable
		}
	}
	return ExitFailed
}

// usage writes what there is.
func (p Program) usage(w io.Writer) {
	say(w, `Usage: %s VERB [ARGUMENTS] [--FLAGS]

Works on the task hub that the app's configuration names: host.json, the
environment and local.settings.json. An embedded hub that a running app has is
asked by way of that app.

`, p.Name)
	for _, v := range verbs {
		say(w, "  %-28s %s\n", strings.Join(append([]string{v.name}, v.args...), " "), v.does)
	}
	say(w, `
%s VERB --help tells the flags of a verb. All have
  --output table|json          how to print; table by default. Where no terminal reads
                               them, the cells of a table are whole, with tabs between
%[1]s --version prints the version of the program.

Exit codes: 0 done, also if no instance matches a filter; 1 failed; 2 wrong
arguments; 3 no such instance, entity or task hub; 4 refused for the state of
the instance, or the named instance does not match the filters; 5 the hub is
unreachable or in use.
`, p.Name)
}

// say writes text. It ignores the error of a terminal that is gone.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
