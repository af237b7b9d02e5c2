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

// Exit codes of a program.
const (
	ExitOK          = 0
	ExitFailed      = 1 // the operation failed; standard error has the reason
	ExitUsage       = 2 // the arguments are not valid
	ExitNotFound    = 3 // the instance, entity or task hub does not exist
	ExitRefused     = 4 // the instance's status or the filters do not allow the operation, or an ID is taken
	ExitUnavailable = 5 // the hub is unreachable or in use
)

// A Target is a management API.
type Target struct {
	Client *http.Client
	Base   string // base URL without a trailing slash
	Key    string // sent with each request, unless empty
	// Close releases the target. It may be nil.
	Close func() error
}

// A CopyRequest describes a copy or a backup of a hub.
type CopyRequest struct {
	From, To     string
	TaskHub      string        // name in Azure Storage; by default the configured name
	Wait         time.Duration // how long to wait until no worker uses the hubs
	IgnoreHidden bool
	Running      bool         // copies a hub in partition logs while workers use it
	Progress     func(string) // reports progress
}

// BackupResult is the result of a backup: the file, its size, and how many seconds no worker could use
// the hub.
type BackupResult struct {
	Path  string  `json:"backup"`
	Bytes int64   `json:"bytes"`
	Pause float64 `json:"pauseSeconds"`
}

// ErrUseManagementAPI is returned by [Program.Backup] if the management API must write the backup.
var ErrUseManagementAPI = errors.New("the management API writes the backup")

// A DeleteRequest describes the deletion of a hub.
type DeleteRequest struct {
	Force bool         // deletes the hub even if a worker uses it
	Warn  func(string) // warns of the consequences
}

// CompactResult is the result of a compaction: the hub or file, and its sizes in bytes.
type CompactResult struct {
	Path   string `json:"compacted"`
	Before int64  `json:"bytesBefore"`
	After  int64  `json:"bytesAfter"`
}

// RepairResult is the result of a search for damage and of the repair.
type RepairResult struct {
	Hub      string          `json:"hub"`
	Blobs    [][]string      `json:"-"` // table of the existing blobs
	Report   any             `json:"report"`
	Problems []RepairProblem `json:"-"`
}

// A RepairProblem is one problem of a hub.
type RepairProblem struct {
	What, Lost string
	Repair     string // the effect of the repair; empty if no repair is possible
	Repaired   bool
}

// A Program is the command line of a task hub.
type Program struct {
	Name           string // the command, such as "app hub"
	Version        string // version of the program
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Terminal reports that Stdout is a terminal. Tables then have aligned columns with shortened
	// cells, in color if Colors is set. Otherwise cells are complete and separated by tabs.
	Terminal, Colors bool

	// Open returns a management API for the configured hub.
	Open func(ctx context.Context) (*Target, error)
	// Delete deletes the hub and returns its name.
	Delete func(ctx context.Context, r DeleteRequest) (string, error)
	// Compact makes the hub as small as possible.
	Compact func(ctx context.Context) (CompactResult, error)
	// Repair searches the hub for damage. With apply it repairs what it can. It may return a partial
	// result together with an error.
	Repair func(ctx context.Context, apply bool) (RepairResult, error)
	// Copy copies a hub and returns the counts. They are printed as JSON, or as text with String.
	Copy func(ctx context.Context, r CopyRequest) (fmt.Stringer, error)
	// Backup writes a backup of the hub into a new local file. It returns [ErrUseManagementAPI] if the
	// hub is in a local file.
	Backup func(ctx context.Context, r CopyRequest) (BackupResult, error)
	// Verify returns an error if a history does not match the program's orchestrators. The history is
	// in the JSON of the management API. It is nil if the program has no orchestrators.
	Verify func(history []byte) error
	// Console serves the hub's web console on this machine until ctx ends. It passes the address to
	// show.
	Console func(ctx context.Context, show func(address string) error) error
	// Crashes returns the functions that have crashed the app on this machine. With forget it also
	// deletes the record of them.
	Crashes func(forget bool) ([]durable.Crash, error)
}

// A verb is a command, such as `get`.
type verb struct {
	name  string
	args  []string // names of the arguments
	does  string
	more  string // additional help text of the verb
	flags func(f *flags)
	run   func(c command) error
}

// Run runs the verb in args and returns the exit code. It masks secrets in everything that it writes to
// standard error.
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
	var group []string // verbs whose first word is args[0]
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
		say(p.Stderr, "%s: want one of %s. See %[1]s --help.\n", p.Name, strings.Join(group, ", "))
	default:
		say(p.Stderr, "%s: unknown verb %q. See %[1]s --help.\n", p.Name, args[0])
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
	if err == nil {
		err = c.incomplete()
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

// checkArgs checks the number of arguments. Names in brackets are optional. Only the key of an entity may be empty.
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
		return usageError(fmt.Sprintf("unexpected argument %q", given[len(v.args)]))
	}
	for i, arg := range given {
		switch {
		case v.args[i] == keyArg && arg == emptyKey:
			return usageError(`the management API reads the key $ as the empty key; use "" for the empty key`)
		case v.args[i] != keyArg && arg == "":
			return usageError(strings.Trim(v.args[i], "[]") + " is empty")
		}
	}
	return nil
}

// A usageError describes a mistake in the arguments.
type usageError string

func (e usageError) Error() string { return string(e) }

// An answerError is an error status of the management API.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string { return e.text }

// refusal returns the error for an instance whose status does not allow the verb.
func refusal(text string) error { return &answerError{http.StatusPreconditionFailed, text} }

// An UnavailableError reports that the hub is unreachable or that another process uses it.
type UnavailableError struct{ Err error }

func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
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

// usage prints the help text of the program.
func (p Program) usage(w io.Writer) {
	say(w, `Usage: %s VERB [ARGUMENTS] [--FLAGS]

Works on the task hub in the app's configuration: host.json, environment
variables and local.settings.json. If a running app holds the local file of the
hub, the requests go to that app.

`, p.Name)
	for _, v := range verbs {
		say(w, "  %-28s %s\n", strings.Join(append([]string{v.name}, v.args...), " "), v.does)
	}
	say(w, `
%s VERB --help shows the flags of a verb. All verbs have
  --output table|json          the format; table by default. Without a terminal, the
                               cells of a table are complete and separated by tabs
%[1]s --version prints the version of the program.

Exit codes: 0 done, also if no instance matches a filter; 1 failed; 2 wrong
arguments; 3 no such instance, entity or task hub; 4 refused because of the
instance's status or its released locks, or the named instance does not match
the filters; 5 the hub is unreachable or in use.
`, p.Name)
}

// say writes formatted text. It ignores errors, such as of a closed terminal.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
