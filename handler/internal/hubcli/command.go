package hubcli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
)

// A command runs a verb.
type command struct{ *call }

// An instance is an instance as returned by the management API.
type instance struct{ statusjson.Status[event] }

// hasEnded reports whether the instance has ended.
func (i instance) hasEnded() bool {
	switch i.RuntimeStatus {
	case "Completed", "Failed", "Terminated", "Canceled":
		return true
	}
	return false
}

func (c command) start() error {
	input, err := c.payload()
	if err != nil {
		return err
	}
	path := []string{"orchestrators", c.args[0]}
	if c.flags.id != "" {
		path = append(path, c.flags.id)
	}
	query := url.Values{}
	if c.flags.version != "" {
		query.Set("version", c.flags.version)
	}
	a, err := c.request(http.MethodPost, path, query, input, nil)
	if err != nil {
		return err
	}
	started, err := decode[struct{ ID, Warning string }](a)
	if err != nil {
		return err
	}
	if started.Warning != "" {
		c.tell(started.Warning)
	}
	if c.flags.wait == 0 {
		return c.print(map[string]string{"instanceId": started.ID}, started.ID)
	}
	c.tell("started " + started.ID)
	c.args = []string{started.ID}
	return c.await(c.flags.wait)
}

// pollEvery is the interval at which await polls an instance.
const pollEvery = 200 * time.Millisecond

// await waits up to most for the instance c.args[0] to end, and prints it. It fails unless the instance
// completes in time.
func (c command) await(most time.Duration) error {
	defer c.working("waiting for instance " + c.args[0])()
	deadline := time.Now().Add(most)
	for {
		a, err := c.instance(http.MethodGet, nil, nil, nil)
		if err != nil {
			return err
		}
		i, err := decode[instance](a)
		if err != nil {
			return err
		}
		late := time.Now().After(deadline)
		if !i.hasEnded() && !late {
			select {
			case <-time.After(pollEvery):
				continue
			case <-c.ctx.Done():
				return c.ctx.Err()
			}
		}
		if err := c.show(a, i); err != nil {
			return err
		}
		if i.RuntimeStatus != "Completed" {
			return fmt.Errorf("instance %q is %s", i.InstanceID, i.RuntimeStatus)
		}
		return nil
	}
}

func (c command) get() error {
	query := url.Values{}
	if c.flags.noInput {
		query.Set("showInput", "false")
	}
	if c.flags.showHistory {
		query.Set("showHistory", "true")
	}
	a, err := c.instance(http.MethodGet, nil, query, nil)
	if err != nil {
		return err
	}
	i, err := decode[instance](a)
	if err != nil {
		return err
	}
	return c.show(a, i)
}

func (c command) history() error {
	query := url.Values{"showHistory": {"true"}, "showInput": {strconv.FormatBool(!c.flags.noInput)}}
	if c.flags.showOutput || c.flags.output == "json" {
		query.Set("showHistoryOutput", "true")
	}
	a, err := c.instance(http.MethodGet, nil, query, nil)
	if err != nil {
		return err
	}
	if c.flags.output == "json" {
		whole, err := decode[struct {
			HistoryEvents json.RawMessage `json:"historyEvents"`
		}](a)
		if err != nil {
			return err
		}
		if whole.HistoryEvents == nil {
			whole.HistoryEvents = json.RawMessage("[]")
		}
		return c.json(whole.HistoryEvents)
	}
	i, err := decode[instance](a)
	if err != nil {
		return err
	}
	return c.events(i.HistoryEvents)
}

// selection returns the query parameters for the flags that select instances.
func (c command) selection() (url.Values, error) {
	query := url.Values{}
	for _, bound := range []struct{ name, flag, value string }{
		{"createdTimeFrom", "--created-after", c.flags.after}, {"createdTimeTo", "--created-before", c.flags.before},
	} {
		if bound.value == "" {
			continue
		}
		if _, err := time.Parse(time.RFC3339, bound.value); err != nil {
			return nil, usageError(fmt.Sprintf("%s is %q; want a time such as 2026-01-31T12:00:00Z", bound.flag, bound.value))
		}
		query.Set(bound.name, bound.value)
	}
	for status := range strings.SplitSeq(c.flags.status, ",") {
		if status = strings.TrimSpace(status); status == "" {
			continue
		}
		known, ok := knownStatus(status)
		if !ok {
			return nil, usageError(fmt.Sprintf("--status contains %q; want some of %s", status, strings.Join(statuses, ", ")))
		}
		query.Add("runtimeStatus", known)
	}
	if c.flags.status != "" && len(query["runtimeStatus"]) == 0 {
		return nil, usageError(fmt.Sprintf("--status is %q; want some of %s", c.flags.status, strings.Join(statuses, ", ")))
	}
	if c.flags.prefix != "" {
		query.Set("instanceIdPrefix", c.flags.prefix)
	}
	return query, nil
}

var statuses = []string{"Pending", "Running", "Suspended", "ContinuedAsNew", "Completed", "Failed", "Terminated", "Canceled"}

// knownStatus returns the canonical spelling of a status.
func knownStatus(text string) (string, bool) {
	for _, s := range statuses {
		if strings.EqualFold(s, text) {
			return s, true
		}
	}
	return "", false
}

// withoutPayloads returns the query parameters that omit inputs and outputs.
func withoutPayloads() url.Values {
	return url.Values{"showInput": {"false"}, "showOutput": {"false"}}
}

// pageSize is the number of instances per request.
const pageSize = 500

func (c command) list() error {
	query, err := c.selection()
	if err != nil {
		return err
	}
	if c.flags.entities && c.flags.prefix == "" {
		query.Set("instanceIdPrefix", "@")
	}
	query.Set("showInput", "false")
	if !c.flags.showOutput {
		query.Set("showOutput", "false")
	}
	all, err := c.pages([]string{"instances"}, query, func(raw json.RawMessage) bool {
		var one instance
		return json.Unmarshal(raw, &one) != nil || c.matches(one) && (!c.flags.entities || history.IsEntity(one.InstanceID))
	})
	if err != nil {
		return err
	}
	return c.instances(all)
}

// filtersLocally reports whether a flag selects by a property that the management API cannot filter by.
func (c command) filtersLocally() bool { return c.flags.name != "" || len(c.flags.tags) > 0 }

// matches reports whether an instance matches --name and --tag, which the management API cannot filter
// by.
func (c command) matches(one instance) bool {
	return (c.flags.name == "" || strings.EqualFold(one.Name, c.flags.name)) &&
		!slices.ContainsFunc(c.flags.tags, func(tag string) bool { return !one.Tags.Contain(tag) })
}

// checkNamed returns an error if the flags select instances and the named instance does not match them.
func (c command) checkNamed(v verb) error {
	at := slices.IndexFunc(v.args, func(name string) bool { return name == "[ID]" || name == "[PATH]" })
	switch {
	case at < 0 || len(c.args) < len(v.args):
		return nil
	case c.flags.all:
		return usageError("an ID and --all exclude each other")
	case !c.flags.filter():
		return nil
	case v.args[at] == "[PATH]":
		return usageError("PATH and filters exclude each other")
	}
	if _, err := c.selection(); err != nil {
		return err
	}
	id := c.args[at]
	a, err := c.request(http.MethodGet, []string{"instances", id}, withoutPayloads(), nil, nil)
	if err != nil {
		return err
	}
	one, err := decode[instance](a)
	if err != nil {
		return err
	}
	if reason := c.mismatch(one); reason != "" {
		return refusal(fmt.Sprintf("instance %q does not match: %s", id, reason))
	}
	return nil
}

// mismatch returns the reason why an instance does not match the filters, or "" if it matches. The
// management API returns creation times in whole seconds. An instance matches a time filter only if the
// whole second does.
func (c command) mismatch(one instance) string {
	before := func(a, b string) bool { // both are valid times
		at, _ := time.Parse(time.RFC3339, a)
		bt, _ := time.Parse(time.RFC3339, b)
		return at.Before(bt)
	}
	isStatus := func(text string) bool { return strings.EqualFold(strings.TrimSpace(text), one.RuntimeStatus) }
	switch f := c.flags; {
	case f.status != "" && !slices.ContainsFunc(strings.Split(f.status, ","), isStatus):
		return "its status is " + one.RuntimeStatus
	case !strings.HasPrefix(one.InstanceID, f.prefix):
		return "its ID does not start with " + f.prefix
	case f.after != "" && before(one.CreatedTime, f.after),
		f.before != "" && !before(one.CreatedTime, f.before):
		return "it was created at " + one.CreatedTime
	case f.name != "" && !strings.EqualFold(one.Name, f.name):
		return "its orchestrator is " + one.Name
	case !c.matches(one):
		return "its tags are " + cmp.Or(one.Tags.String(), "empty")
	}
	return ""
}

// pages requests the pages of a list and returns the items for which keep returns true. It stops after
// --top items, or returns all with --all.
func (c command) pages(path []string, query url.Values, keep func(json.RawMessage) bool) (all []json.RawMessage, err error) {
	if c.flags.top < 1 {
		return nil, usageError(fmt.Sprintf("--top is %d; want 1 or more", c.flags.top))
	}
	continuation := ""
	for {
		size := pageSize
		if !c.flags.all && !c.filtersLocally() {
			size = min(size, c.flags.top-len(all))
		}
		query.Set("top", strconv.Itoa(size))
		page, next, err := c.page(path, query, continuation)
		if err != nil {
			return nil, err
		}
		for _, raw := range page {
			if keep(raw) {
				all = append(all, raw)
			}
		}
		continuation = next
		if continuation == "" || !c.flags.all && len(all) >= c.flags.top {
			break
		}
		if c.flags.all {
			c.tell(fmt.Sprintf("%d %s …", len(all), path[0]))
		}
	}
	more := continuation != ""
	if !c.flags.all && len(all) > c.flags.top {
		all, more = all[:c.flags.top], true
	}
	if more {
		c.tell(fmt.Sprintf("There are more than %d; use --top or --all.", len(all)))
	}
	return all, nil
}

// done prints the result of a verb for the instance in the first argument.
func (c command) done(text string) error {
	return c.print(map[string]string{"instanceId": c.args[0], "done": text}, text)
}

func (c command) console() error {
	return c.program.Console(c.ctx, func(address string) error { return c.print(map[string]string{"url": address}, address) })
}

func (c command) crashes() error {
	all, err := c.program.Crashes(c.flags.forget)
	if err != nil {
		return err
	}
	if c.flags.output == "json" {
		return c.print(append([]durable.Crash{}, all...), "")
	}
	rows := [][]string{{"CRASHES", "LAST", "SET ASIDE", "WHAT"}}
	for _, one := range all {
		aside := "no"
		if one.SetAside {
			aside = "yes"
		}
		rows = append(rows, []string{strconv.Itoa(one.Count), one.Last.Format(time.RFC3339), aside, cell(one.What)})
	}
	if err := c.table(rows); err != nil || !c.flags.forget {
		return err
	}
	c.tell("The record was deleted. Work that was set aside runs again.")
	return nil
}

func (c command) retryUndecodable() error {
	a, err := c.request(http.MethodPost, []string{"undecodable", "retry"}, nil, nil, nil)
	if err != nil {
		return err
	}
	retried, err := decode[struct {
		Messages int `json:"messagesPutBack"`
	}](a)
	if err != nil {
		return err
	}
	return c.print(retried, fmt.Sprintf("moved %d messages back into their queues", retried.Messages))
}

func (c command) deleteHub() error {
	if !c.flags.yes {
		return usageError("this deletes the task hub and everything in it; confirm with --yes")
	}
	defer c.working("deleting")()
	what, err := c.program.Delete(c.ctx, DeleteRequest{Force: c.flags.force, Warn: c.tell})
	if err != nil {
		return err
	}
	return c.print(map[string]string{"deleted": what}, "deleted "+what)
}

func (c command) compact() error {
	defer c.working("compacting")()
	done, err := c.program.Compact(c.ctx)
	if err != nil {
		return err
	}
	return c.print(done, fmt.Sprintf("compacted %s: %.1f MB, before %.1f MB", done.Path, float64(done.After)/1e6, float64(done.Before)/1e6))
}

func (c command) repair() error {
	done := c.working("looking for damage")
	r, err := c.program.Repair(c.ctx, c.flags.apply)
	done()
	if err != nil && r.Report == nil {
		return err
	}
	if c.flags.output == "json" {
		return errors.Join(c.print(r, ""), err, c.unrepaired(r))
	}
	if err := c.table(r.Blobs); err != nil {
		return err
	}
	for _, p := range r.Problems {
		repair := "none; restore the blobs from soft delete or a version"
		switch {
		case p.Repaired:
			repair = "done: " + p.Repair
		case p.Repair != "":
			repair = p.Repair
		}
		if err := c.print(nil, fmt.Sprintf("\nproblem: %s\n   lost: %s\n repair: %s", cell(p.What), cell(p.Lost), cell(repair))); err != nil {
			return err
		}
	}
	return errors.Join(err, c.unrepaired(r))
}

// unrepaired returns an error if problems remain.
func (c command) unrepaired(r RepairResult) error {
	open, possible := 0, 0
	for _, p := range r.Problems {
		if !p.Repaired {
			open++
		}
		if !p.Repaired && p.Repair != "" {
			possible++
		}
	}
	switch {
	case open == 0:
		return nil
	case possible > 0 && !c.flags.apply:
		return fmt.Errorf("%s has %d problems; --apply repairs %d of them", r.Hub, open, possible)
	}
	return fmt.Errorf("%s has %d problems", r.Hub, open)
}

func (c command) backup() error {
	path, err := filepath.Abs(c.args[0])
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return usageError(c.args[0] + " exists; name a new file")
	}
	done, err := c.program.Backup(c.ctx, CopyRequest{To: path, Wait: c.flags.wait, IgnoreHidden: c.flags.ignoreHidden, Progress: c.tell})
	if errors.Is(err, ErrUseManagementAPI) {
		done, err = c.backupByApp(path)
	}
	if err != nil {
		return err
	}
	text := fmt.Sprintf("backed up to %s: %.1f MB", done.Path, float64(done.Bytes)/1e6)
	if done.Pause > 0 {
		text += fmt.Sprintf("; no worker could use the hub for %.1f s", done.Pause)
	}
	return c.print(done, text)
}

// backupByApp lets the running app write the backup.
func (c command) backupByApp(path string) (done BackupResult, err error) {
	defer c.working("backing up")()
	a, err := c.request(http.MethodPost, []string{"backup"}, url.Values{"path": {path}}, nil, nil)
	if err != nil {
		return done, err
	}
	return decode[BackupResult](a)
}

func (c command) copyHub() error {
	report, err := c.program.Copy(c.ctx, CopyRequest{
		From: c.args[0], To: c.args[1], TaskHub: c.flags.taskHub, Wait: c.flags.wait, IgnoreHidden: c.flags.ignoreHidden, Progress: c.tell,
	})
	if err != nil {
		return err
	}
	return c.print(report, "copied "+report.String())
}
