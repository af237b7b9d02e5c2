package hubcli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
)

// A replays runs the verbs that read the histories of many instances.
type replays struct {
	command

	mu     sync.Mutex // guards the results of concurrent requests
	tries  attempts
	failed int // instances that could not be read
}

// maxConcurrent is the number of instances that are processed at the same time.
const maxConcurrent = 8

// notEnded lists the statuses of instances that have not ended.
const notEnded = "Pending,Running,Suspended,ContinuedAsNew"

// each calls the function look, concurrently, for all instances that the flags select. It returns their number.
// Without --status it selects the instances that have not ended. It prints and counts each instance that
// cannot be read, and continues. It stops after the first page with another error.
func (r *replays) each(look func(one instance) error) (n int, err error) {
	r.flags.status = cmp.Or(r.flags.status, notEnded)
	query, err := r.selection()
	if err != nil {
		return 0, err
	}
	maps.Copy(query, withoutPayloads())
	query.Set("top", strconv.Itoa(pageSize))
	taken := map[[2]string]int{}
	for continuation := ""; ; {
		page, next, err := r.page([]string{"instances"}, query, continuation)
		if err != nil {
			return n, err
		}
		var all []instance
		for _, raw := range page {
			var one instance
			if err := json.Unmarshal(raw, &one); err != nil {
				return n, fmt.Errorf("%w: %w", errUnexpected, err)
			}
			kind := [2]string{one.Name, one.Version}
			switch {
			case history.IsEntity(one.InstanceID), !r.matches(one), r.isActive(one),
				r.flags.sample > 0 && taken[kind] == r.flags.sample:
				continue
			}
			taken[kind]++
			all = append(all, one)
		}
		err = forEachConcurrently(all, func(one instance) error { return r.look(one, look) })
		if err == nil {
			err = r.tries.outage
		}
		if err != nil {
			return n, err
		}
		n += len(all)
		if continuation = next; continuation == "" {
			return n, nil
		}
		r.tell(fmt.Sprintf("instances so far: %d", n))
	}
}

// isActive reports whether an instance has made progress within --idle.
func (r *replays) isActive(one instance) bool {
	moved, err := time.Parse(time.RFC3339, one.LastUpdatedTime)
	return err == nil && r.flags.idle > 0 && time.Since(moved) < r.flags.idle
}

// look calls the function of each for one instance.
func (r *replays) look(one instance, look func(one instance) error) error {
	if r.tries.stopped(r.ctx) {
		return nil
	}
	err := look(one)
	r.tries.add(err)
	answer, ok := errors.AsType[*answerError](err)
	if !ok || exitCode(answer) != ExitFailed && exitCode(answer) != ExitUnavailable {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	r.tell(err.Error())
	return nil
}

// incomplete returns an error if some of n instances could not be read.
func (r *replays) incomplete(n int) error {
	if r.failed == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d instances could not be read", r.failed, n)
}

// forEachConcurrently calls do for each element, at most maxConcurrent at a time, and returns the joined errors.
func forEachConcurrently[T any](all []T, do func(T) error) error {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		errs  []error
	)
	queue := make(chan T)
	for range min(maxConcurrent, len(all)) {
		group.Go(func() {
			for one := range queue {
				if err := do(one); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, one := range all {
		queue <- one
	}
	close(queue)
	group.Wait()
	return errors.Join(errs...)
}

// ask requests a part of an instance. It returns nil if the instance no longer exists.
func (r *replays) ask(id, what string) (*answer, error) {
	a, err := r.request(http.MethodGet, []string{"instances", id, what}, nil, nil, nil)
	if a != nil && a.status == http.StatusNotFound {
		var there *answer
		there, err = r.request(http.MethodGet, []string{"instances", id}, withoutPayloads(), nil, nil)
		switch {
		case err == nil:
			return nil, fmt.Errorf("the app that holds the task hub is too old to return the %s of an instance: stop it first", what)
		case there != nil && there.status == http.StatusNotFound:
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("instance %q: %w", id, err)
	}
	return a, nil
}

// A mismatchedInstance is an instance whose history does not match the code of this program.
type mismatchedInstance struct {
	InstanceID string `json:"instanceId"`
	Name       string `json:"name"`
	Version    string `json:"version,omitempty"`
	Event      *int   `json:"event,omitempty"`    // index in the history
	Recorded   string `json:"recorded,omitempty"` // the recorded event
	Produced   string `json:"produced,omitempty"` // the action of the code instead
	Problem    string `json:"problem"`
	Stack      string `json:"stack,omitempty"` // of code that does not yield; only in the first such instance of a function
}

// verify replays instances, or histories in files. It fails if any history does not match the code.
func (r *replays) verify() error {
	if r.program.Verify == nil {
		return usageError("this program has no orchestrators to compare with: run hub verify with the app's own program")
	}
	var mismatched []mismatchedInstance
	add := func(one mismatchedInstance) {
		r.mu.Lock()
		defer r.mu.Unlock()
		mismatched = append(mismatched, one)
	}
	check := func(one mismatchedInstance, text []byte) {
		err := r.program.Verify(text)
		if err == nil {
			return
		}
		one.Problem = err.Error()
		if stall, ok := errors.AsType[*durable.StallError](err); ok {
			one.InstanceID, one.Name, one.Version = string(stall.InstanceID), stall.Name, string(stall.Version)
			one.Problem, one.Stack, _ = strings.Cut(one.Problem, "\n")
		}
		if m, ok := errors.AsType[*durable.HistoryMismatchError](err); ok {
			one.InstanceID, one.Name, one.Version = string(m.InstanceID), m.Name, string(m.Version)
			one.Event, one.Recorded, one.Produced = &m.Event, m.Recorded, m.Produced
		}
		add(one)
	}
	n, err := 0, error(nil)
	if len(r.args) == 1 {
		n, err = r.files(r.args[0], func(file string, text []byte, err error) {
			if err != nil {
				add(mismatchedInstance{InstanceID: file, Problem: err.Error()})
				return
			}
			check(mismatchedInstance{InstanceID: file}, text)
		})
	} else {
		n, err = r.each(func(one instance) error {
			a, err := r.ask(one.InstanceID, "history")
			this := mismatchedInstance{InstanceID: one.InstanceID, Name: one.Name, Version: one.Version}
			if a != nil {
				check(this, a.body)
			}
			if _, ok := errors.AsType[*answerError](err); ok {
				this.Problem = err.Error()
				add(this)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	slices.SortFunc(mismatched, func(a, b mismatchedInstance) int { return strings.Compare(a.InstanceID, b.InstanceID) })
	if r.flags.output == "json" {
		err = r.print(append([]mismatchedInstance{}, mismatched...), "")
	} else if len(mismatched) > 0 {
		rows := [][]string{{"ID", "NAME", "VERSION", "EVENT", "THE HISTORY HAS", "THE CODE DID"}}
		for _, m := range mismatched {
			event := ""
			if m.Event != nil {
				event = strconv.Itoa(*m.Event)
			}
			rows = append(rows, []string{cell(m.InstanceID), cell(m.Name), cell(m.Version), event, r.short(cell(cmp.Or(m.Recorded, m.Problem))), r.short(cell(m.Produced))})
		}
		if err = r.table(rows); err == nil {
			err = r.mismatchStacks(mismatched)
		}
	}
	if err != nil {
		return err
	}
	if len(mismatched) > 0 {
		return fmt.Errorf("%d of %d instances do not match the orchestrators of this program", len(mismatched), n)
	}
	if r.unreadable > 0 {
		return nil // the call reports the unreadable records
	}
	r.tell(fmt.Sprintf("All instances match the orchestrators of this program: %d", n))
	return nil
}

// files calls look for the history in a file, or for each history in a folder, and returns their
// number.
func (r *replays) files(path string, look func(name string, text []byte, err error)) (int, error) {
	names, err := historyFiles(path)
	if err != nil {
		return 0, err
	}
	_ = forEachConcurrently(names, func(name string) error {
		text, err := r.read(func() ([]byte, error) { return os.ReadFile(name) })
		if r.ctx.Err() == nil {
			look(name, text, err)
		}
		return nil
	})
	return len(names), r.ctx.Err()
}

// record writes each history to its own file.
func (r *replays) record() error {
	if err := os.MkdirAll(r.flags.dir, 0o750); err != nil {
		return err
	}
	recorded := 0
	write := func(id string) error {
		a, err := r.ask(id, "history")
		if err != nil || a == nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		recorded++
		return os.WriteFile(filepath.Join(r.flags.dir, fileName(id)), a.body, 0o600)
	}
	n, err := 1, error(nil)
	if len(r.args) == 1 {
		if _, err = r.instance(http.MethodGet, nil, withoutPayloads(), nil); err == nil {
			err = write(r.args[0])
		}
	} else {
		n, err = r.each(func(one instance) error { return write(one.InstanceID) })
	}
	if err != nil {
		return err
	}
	err = r.print(map[string]any{"recorded": recorded, "directory": r.flags.dir}, fmt.Sprintf("recorded %d histories in %s", recorded, r.flags.dir))
	return errors.Join(err, r.incomplete(n))
}

// why prints the reasons why an instance is waiting or, with --stuck, groups many instances by reason.
func (r *replays) why() error {
	switch {
	case r.flags.stuck && len(r.args) == 0:
		return r.stuck()
	case r.flags.stuck || len(r.args) == 0:
		return usageError("give either an ID or --stuck")
	}
	var all []statusjson.Why
	seen := map[string]bool{}
	for ids := []string{r.args[0]}; len(ids) > 0; ids = ids[1:] {
		if seen[ids[0]] {
			continue
		}
		seen[ids[0]] = true
		a, err := r.request(http.MethodGet, []string{"instances", ids[0], "why"}, nil, nil, nil)
		if a != nil && a.status == http.StatusNotFound && len(all) > 0 { // a child
			all = append(all, statusjson.Why{InstanceID: ids[0], Reasons: []statusjson.Reason{{Text: "has not started, or was purged"}}})
			continue
		}
		if err != nil {
			return err
		}
		w, err := decode[statusjson.Why](a)
		if err != nil {
			return err
		}
		all = append(all, w)
		for _, reason := range w.Reasons {
			if r.flags.children && reason.Kind == string(durable.ReasonSubOrchestration) {
				ids = append(ids, reason.InstanceIDs...)
			}
		}
	}
	if r.flags.output == "json" {
		return r.print(all, "")
	}
	rows := [][]string{{"ID", "STATUS", "AT", "WAITS FOR", "SINCE", "DUE"}}
	for _, w := range all {
		for _, reason := range w.Reasons {
			text := reason.Text
			if reason.RunningSince != "" {
				text += ", started " + ago(reason.RunningSince)
			}
			rows = append(rows, []string{
				cell(w.InstanceID), w.RuntimeStatus, strings.Join(reason.Where, " "), cell(text), ago(reason.Since), ago(reason.Due),
			})
		}
	}
	if err := r.table(rows); err != nil {
		return err
	}
	return r.stacks(all)
}

// stacks prints the stack of each function that does not yield, once.
func (r *replays) stacks(all []statusjson.Why) error {
	shown := map[string]bool{"": true}
	for _, w := range all {
		for _, reason := range w.Reasons {
			if shown[reason.Stack] {
				continue
			}
			shown[reason.Stack] = true
			if err := r.stack(reason.Name, reason.Stack); err != nil {
				return err
			}
		}
	}
	return nil
}

// mismatchStacks prints the stack of each function that does not yield.
func (r *replays) mismatchStacks(all []mismatchedInstance) error {
	for _, m := range all {
		if m.Stack == "" {
			continue
		}
		if err := r.stack(m.Name, m.Stack); err != nil {
			return err
		}
	}
	return nil
}

func (r *replays) stack(function, stack string) error {
	_, err := fmt.Fprintf(r.program.Stdout, "\nstack of %s:\n%s\n", cell(function), stack)
	return err
}

// ago formats the time in text relative to now, such as "3s ago" or "in 2m". It returns "" if text is
// not a time.
func ago(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return ""
	}
	d := time.Since(at).Round(time.Second)
	if d < 0 {
		return fmt.Sprintf("in %v", -d)
	}
	return fmt.Sprintf("%v ago", d)
}

// A stuckGroup is a group of instances that wait at the same line for the same reason.
type stuckGroup struct {
	Count   int       `json:"count"`
	Name    string    `json:"name"` // the orchestrator
	Kind    string    `json:"kind"`
	Where   string    `json:"where,omitempty"`
	What    string    `json:"what,omitempty"` // the name of the event or function
	Oldest  time.Time `json:"oldest"`
	Example string    `json:"example"` // the instance that has waited longest
}

// stuck prints groups of instances without progress for --idle, the largest group first.
func (r *replays) stuck() error {
	stuckGroups := map[[4]string]*stuckGroup{}
	n, err := r.each(func(one instance) error {
		moved, _ := time.Parse(time.RFC3339, one.LastUpdatedTime)
		a, err := r.ask(one.InstanceID, "why")
		if err != nil || a == nil {
			return err
		}
		w, err := decode[statusjson.Why](a)
		if err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		counted := map[[4]string]bool{}
		for _, reason := range w.Reasons {
			key := [4]string{w.Name, reason.Kind, strings.Join(reason.Where, " "), reason.Name}
			if counted[key] {
				continue
			}
			counted[key] = true
			j := stuckGroups[key]
			if j == nil {
				j = &stuckGroup{Name: key[0], Kind: key[1], Where: key[2], What: key[3], Oldest: moved, Example: one.InstanceID}
				stuckGroups[key] = j
			}
			if j.Count++; moved.Before(j.Oldest) {
				j.Oldest, j.Example = moved, one.InstanceID
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := make([]*stuckGroup, 0, len(stuckGroups))
	for _, j := range stuckGroups {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *stuckGroup) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Name+a.Kind+a.What+a.Where, b.Name+b.Kind+b.What+b.Where))
	})
	if r.flags.output == "json" {
		return errors.Join(r.print(all, ""), r.incomplete(n))
	}
	rows := [][]string{{"COUNT", "NAME", "AT", "WAITS FOR", "OLDEST", "EXAMPLE"}}
	for _, j := range all {
		rows = append(rows, []string{
			strconv.Itoa(j.Count), cell(j.Name), j.Where, cell(strings.TrimSpace(j.Kind + " " + j.What)), ago(j.Oldest.Format(time.RFC3339)), cell(j.Example),
		})
	}
	return errors.Join(r.table(rows), r.incomplete(n))
}
