package hubcli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
)

// A call is one run of a verb.
type call struct {
	ctx     context.Context // the program's context
	program Program
	verbs   []verb // all verbs
	verb    string
	flags   *flags
	args    []string
	target  *Target // opened by the first request

	unreadable int // records that the last list or purge skipped because they cannot be read
}

// An answer is a response of the management API.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// request sends a request to the management API. The path is relative to the API's base URL. If the
// response has an error status, request returns the answer and an *answerError.
func (c *call) request(method string, path []string, query url.Values, body []byte, header http.Header) (*answer, error) {
	if c.target == nil {
		target, err := c.program.Open(c.ctx)
		if err != nil {
			return nil, err
		}
		c.target = target
	}
	address := c.target.Base
	for _, segment := range path {
		address += "/" + url.PathEscape(segment)
	}
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(c.ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.target.Key != "" {
		req.Header.Set("X-Functions-Key", c.target.Key)
	}
	resp, err := c.target.Client.Do(req)
	if err != nil {
		return nil, &UnavailableError{err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, &UnavailableError{err}
	}
	a := &answer{resp.StatusCode, resp.Header, text}
	if a.status >= http.StatusBadRequest {
		return a, c.answerError(path, a)
	}
	return a, nil
}

// continuationHeader is set in the response with a page that is not the last.
const continuationHeader = "X-Ms-Continuation-Token"

// unreadableHeader is set in the response to a list or purge that skipped records. Its value is their
// number.
const unreadableHeader = "X-Durable-Unreadable"

// page requests one page of a list. Next is the continuation of the next page, "" on the last.
func (c *call) page(path []string, query url.Values, continuation string) (page []json.RawMessage, next string, err error) {
	header := http.Header{}
	if continuation != "" {
		header.Set(continuationHeader, continuation)
	}
	a, err := c.request(http.MethodGet, path, query, nil, header)
	if err != nil {
		return nil, "", err
	}
	if continuation == "" {
		c.unreadable = 0
	}
	c.addUnreadable(a)
	page, err = decode[[]json.RawMessage](a)
	return page, a.header.Get(continuationHeader), err
}

// addUnreadable adds the number of records that an answer omits.
func (c *call) addUnreadable(a *answer) {
	n, _ := strconv.Atoi(a.header.Get(unreadableHeader))
	c.unreadable += n
}

// incomplete returns an error if the last list or purge skipped records.
func (c *call) incomplete() error {
	if c.unreadable == 0 {
		return nil
	}
	return fmt.Errorf("the result is incomplete. Records of the task hub that cannot be read: %d. The log of the app names them (InstanceUnreadable); "+
		"for a hub in partition logs, run hub repair", c.unreadable)
}

// instance sends a request about the instance whose ID is the first argument.
func (c *call) instance(method string, below []string, query url.Values, body []byte) (*answer, error) {
	return c.request(method, append([]string{"instances", c.args[0]}, below...), query, body, nil)
}

// unknownRestart is the start of .NET's message for the restart of an unknown instance. The status is
// 400.
const unknownRestart = "InstanceId does not match"

// answerError returns the error that describes an answer with an error status. The error of a bulk
// verb does not name the instance; the caller does.
func (c *call) answerError(path []string, a *answer) *answerError {
	isInstance := path[0] == "instances" && len(path) > 1
	missing, ended := "there is no such instance", "it has ended"
	if isInstance && len(c.args) > 0 {
		missing, ended = fmt.Sprintf("there is no instance %q", path[1]), fmt.Sprintf("instance %q has ended", path[1])
	}
	var told struct {
		Message          string
		ExceptionMessage string
		ExceptionType    string
		InstancesDeleted *int
	}
	status, text := a.status, ""
	decoded := json.Unmarshal(a.body, &told) == nil
	switch {
	case decoded && c.verb == "restart" && strings.HasPrefix(told.Message, unknownRestart):
		return &answerError{http.StatusNotFound, missing}
	case decoded && told.ExceptionType == "System.InvalidOperationException":
		// For a suspend or resume in the wrong status, the management API of .NET answers with status
		// 500.
		status, text = http.StatusConflict, told.ExceptionMessage
	case told.Message != "":
		text = told.Message
		if told.ExceptionMessage != "" && !strings.Contains(text, told.ExceptionMessage) {
			text = strings.TrimRight(text, ".") + ": " + told.ExceptionMessage
		}
	case json.Unmarshal(a.body, &text) == nil && text != "":
	case a.status == http.StatusNotFound && strings.HasPrefix(c.verb, "entity "):
		text = "there is no such entity"
	case a.status == http.StatusNotFound && isInstance:
		text = missing
	case a.status == http.StatusGone && isInstance:
		text = ended
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden:
		text = "the app requires a key: set DURABLE_KEY"
	default:
		text = fmt.Sprintf("the app answered %d %s", a.status, http.StatusText(a.status))
	}
	text = strings.TrimRight(text, ".")
	if told.InstancesDeleted != nil {
		text = fmt.Sprintf("purged %d instances, then failed: %s", *told.InstancesDeleted, text)
	}
	return &answerError{status, text}
}

// payload returns the JSON of --input or --input-file, or nil if neither is set.
func (c *call) payload() ([]byte, error) {
	text, file := c.flags.input, c.flags.inputFile
	switch {
	case text != "" && file != "":
		return nil, usageError("--input and --input-file exclude each other")
	case file == "-":
		b, err := c.read(func() ([]byte, error) { return io.ReadAll(c.program.Stdin) })
		if err != nil {
			return nil, err
		}
		text = string(b)
	case file != "":
		b, err := c.read(func() ([]byte, error) { return os.ReadFile(file) })
		switch {
		case c.ctx.Err() != nil:
			return nil, c.ctx.Err()
		case err != nil:
			return nil, usageError(err.Error())
		}
		text = string(b)
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, usageError(fmt.Sprintf("%.40s is not JSON; a text needs quotes, as in '\"text\"'", text))
	}
	return []byte(text), nil
}

// read calls from, which may wait for another process, such as one that writes to a pipe. It returns the error of the
// context when the context ends. The call of from continues until the process ends.
func (c *call) read(from func() ([]byte, error)) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := from()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

// working prints what and the elapsed time to standard error every two seconds, until the caller calls
// done.
func (c *call) working(what string) (done func()) {
	ctx, stop := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	go func() { // awaited by done
		defer close(ended)
		began := time.Now()
		for tick := time.NewTicker(2 * time.Second); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				c.tell(fmt.Sprintf("%s … %v", what, time.Since(began).Round(time.Second)))
			}
		}
	}()
	return func() {
		stop()
		<-ended
	}
}

// tell writes text to standard error.
func (c *call) tell(text string) { say(c.program.Stderr, "%s\n", text) }

var errUnexpected = errors.New("unexpected answer")

func decode[T any](a *answer) (v T, err error) {
	if err := json.Unmarshal(a.body, &v); err != nil {
		return v, fmt.Errorf("%w: %w: %.200s", errUnexpected, err, a.body)
	}
	return v, nil
}

// print prints v as JSON with --output json, otherwise text.
func (c *call) print(v any, text string) error {
	if c.flags.output == "json" {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return c.json(b)
	}
	_, err := fmt.Fprintln(c.program.Stdout, text)
	return err
}

// json prints JSON with indentation.
func (c *call) json(text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("%w: %w", errUnexpected, err)
	}
	out.WriteByte('\n')
	_, err := c.program.Stdout.Write(out.Bytes())
	return err
}

// table prints rows; the first row holds the column names. On a terminal it aligns the columns.
// Otherwise it separates cells with tabs.
func (c *call) table(rows [][]string) error {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if !c.program.Terminal {
			say(&out, "%s\n", strings.Join(row, "\t"))
		} else {
			say(w, "%s\n", strings.Join(row, "\t"))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	at := -1 // column of the statuses
	for line := range strings.Lines(out.String()) {
		line = strings.TrimRight(line, " \n")
		if c.program.Colors {
			if at < 0 {
				at = utf8.RuneCountInString(strings.SplitN(line+"STATUS", "STATUS", 2)[0])
			}
			line = colorize(line, at)
		}
		if _, err := fmt.Fprintln(c.program.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// The terminal color of each status.
var colors = map[string]string{"Failed": "31", "Completed": "32", "Pending": "33", "Suspended": "33", "Running": "36", "Terminated": "35"}

// colorize returns line with the status at column at in color.
func colorize(line string, at int) string {
	runes := []rune(line)
	if at >= len(runes) {
		return line
	}
	status, rest, _ := strings.Cut(string(runes[at:]), " ")
	if colors[status] == "" {
		return line
	}
	return string(runes[:at]) + "\x1b[" + colors[status] + "m" + status + "\x1b[0m" + strings.TrimRight(" "+rest, " ")
}

// show prints an instance. a is the answer that i was decoded from.
func (c *call) show(a *answer, i instance) error {
	if c.flags.output == "json" {
		return c.json(a.body)
	}
	rows := [][]string{
		{"ID", i.InstanceID},
		{"Name", i.Name},
		{"Version", i.Version},
		{"Status", i.RuntimeStatus},
		{"Tags", cell(i.Tags.String())},
		{"Note", i.WaitsFor},
		{"Runs here", runsHere(i.RunsHere)},
		{"Created", i.CreatedTime},
		{"Updated", i.LastUpdatedTime},
		{"Input", whole(i.Input)},
		{"Custom status", whole(i.CustomStatus)},
		{"Output", whole(i.Output)},
	}
	filled := rows[:0]
	for _, row := range rows {
		if row[1] != "" {
			filled = append(filled, row)
		}
	}
	if err := c.table(filled); err != nil || len(i.HistoryEvents) == 0 {
		return err
	}
	say(c.program.Stdout, "\n")
	return c.events(i.HistoryEvents)
}

// runsHere describes the activities and steps that the process which answers runs.
func runsHere(running []statusjson.Running) string {
	var all []string
	for _, one := range running {
		text := fmt.Sprintf("%s %q", one.Kind, one.Name)
		if one.Attempt > 0 {
			text += fmt.Sprintf(", attempt %d", one.Attempt)
		}
		all = append(all, text+", since "+one.Since)
	}
	return cell(strings.Join(all, "; "))
}

// instances prints a list of instances.
func (c *call) instances(all []json.RawMessage) error {
	if c.flags.output == "json" {
		if all == nil {
			all = []json.RawMessage{}
		}
		b, err := json.Marshal(all)
		if err != nil {
			return err
		}
		return c.json(b)
	}
	rows := [][]string{{"ID", "NAME", "STATUS", "CREATED", "UPDATED"}}
	for _, raw := range all {
		var i instance
		if err := json.Unmarshal(raw, &i); err != nil {
			return fmt.Errorf("%w: %w", errUnexpected, err)
		}
		rows = append(rows, []string{cell(i.InstanceID), cell(i.Name), i.RuntimeStatus, i.CreatedTime, i.LastUpdatedTime})
	}
	return c.table(rows)
}

// events prints a history.
func (c *call) events(all []event) error {
	rows := [][]string{{"TIME", "EVENT", "NAME", "DETAIL"}}
	for _, e := range all {
		name := e.FunctionName
		if name == "" {
			name = e.Name
		}
		detail := e.OrchestrationStatus
		for _, payload := range []json.RawMessage{e.Result, e.Reason, e.Input} {
			if text := whole(payload); text != "" {
				detail = strings.TrimSpace(detail + " " + text)
			}
		}
		if e.FireAt != "" && detail == "" {
			detail = "at " + e.FireAt
		}
		rows = append(rows, []string{e.Timestamp, e.EventType, cell(name), c.short(detail)})
	}
	return c.table(rows)
}

// An event is an event of a history. The members that are set depend on its type.
type event struct {
	EventType           string
	Timestamp           string
	FunctionName        string
	Name                string
	Result              json.RawMessage
	Reason              json.RawMessage
	Input               json.RawMessage
	OrchestrationStatus string
	FireAt              string
}

// maxDetail is the largest number of characters of a payload in a table.
const maxDetail = 60

// whole returns a payload on one line, or "" for null.
func whole(payload json.RawMessage) string {
	if len(payload) == 0 || string(payload) == "null" {
		return ""
	}
	var out bytes.Buffer
	if err := json.Compact(&out, payload); err != nil {
		return cell(string(payload))
	}
	return cell(out.String())
}

// short shortens text for a terminal.
func (c *call) short(text string) string {
	if !c.program.Terminal || utf8.RuneCountInString(text) <= maxDetail {
		return text
	}
	return string([]rune(text)[:maxDetail-1]) + "…"
}

// cell returns text with control characters replaced, so that it cannot break a table or control the
// terminal.
func cell(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
