package simulated_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// jumpStarted is a hub with JumpStart, a worker and a client.
type jumpStarted struct {
	*fleet
	client *durable.Client
}

const jumpStartTimeout = time.Minute

// inJumpStart runs f in a bubble. decide selects the fault of each request.
func inJumpStart(t *testing.T, decide func(azsim.Request) azsim.Fault, f func(*jumpStarted)) {
	synctest.Test(t, func(t *testing.T) {
		account := azsim.New(azsim.Config{Seed: 3, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: decide})
		defer account.End()
		cfg := azurestorage.Config{TaskHub: "Jump", PartitionCount: 1, JumpStart: azurestorage.JumpStart{Enabled: true, Timeout: jumpStartTimeout}}
		w := &jumpStarted{fleet: &fleet{T: t, account: account, config: cfg, began: time.Now(), running: map[string]*member{}}}
		defer func() {
			for name := range w.running {
				w.leave(name)
			}
		}()
		hub, _ := w.hub("client", nil)
		w.client = durable.NewClient(hub, durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence)))
		w.join("one", nil)
		f(w)
	})
}

// start starts an instance, with a large tag if large is true.
func (j *jumpStarted) start(id string, large bool) error {
	tags := durable.Tags{}
	if large {
		tags["large"] = strings.Repeat("x", 50_000)
	}
	_, err := j.client.StartByName(j.Context(), "HelloSequence", nil, durable.InstanceID(id), tags)
	return err
}

// records returns the number of recorded starts.
func (j *jumpStarted) records() int { return len(j.account.Rows("JumpStart00Jump")) }

// executions returns how many executions of an instance have started.
func (j *jumpStarted) executions(id string) (n int) {
	for _, row := range j.account.Rows("JumpHistory") {
		if row.PartitionKey == id && row.Text("EventType") == "ExecutionStarted" {
			n++
		}
	}
	return n
}

func TestJumpStart_DeletesRecordsAfterTheStart(t *testing.T) {
	inJumpStart(t, nil, func(j *jumpStarted) {
		for i := range 5 {
			if err := j.start(fmt.Sprint("i", i), i == 0); err != nil {
				j.Fatal(err)
			}
		}
		if j.records() == 0 {
			j.Error("no start was recorded")
		}
		time.Sleep(time.Minute)
		if n := j.records(); n != 0 {
			j.Errorf("%d records are left, want 0", n)
		}
		for _, b := range j.account.Blobs() {
			if strings.Contains(b.Name, "jumpstart") {
				j.Errorf("blob %s is left", b.Name)
			}
		}
	})
}

// The client is killed before or after each request of a start. If the start was recorded, the
// instance runs once; otherwise it does not run.
func TestJumpStart_NoStartIsLostOrDuplicatedWhenTheClientDies(t *testing.T) {
	for _, large := range []bool{false, true} {
		for n := range 8 {
			for _, fault := range []azsim.Fault{azsim.KillBefore, azsim.KillAfter} {
				t.Run(fmt.Sprintf("large %v, %v request %d", large, fault, n), func(t *testing.T) {
					jumpStartAfterDeath(t, large, n, fault)
				})
			}
		}
	}
}

func jumpStartAfterDeath(t *testing.T, large bool, n int, fault azsim.Fault) {
	var armed bool
	decide := failClient(&armed, n, fault)
	inJumpStart(t, decide, func(j *jumpStarted) {
		if err := j.start("warm-up", false); err != nil {
			j.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		armed = true
		err := j.start("a", large)
		recorded := j.records() > 0
		time.Sleep(jumpStartTimeout + 40*time.Second)
		ran := j.executions("a")
		if err == nil && ran != 1 || recorded && ran != 1 || ran > 1 {
			j.Errorf("start returned %v, recorded %v, but %d executions", err, recorded, ran)
		}
		time.Sleep(jumpStartTimeout + 40*time.Second)
		if n := j.records(); n != 0 {
			j.Errorf("%d records are left, want 0", n)
		}
		if again := j.executions("a"); again != ran {
			j.Errorf("%d executions, and %d later", ran, again)
		}
	})
}

func TestJumpStart_ARejectedStartIsNotSentAgain(t *testing.T) {
	inJumpStart(t, nil, func(j *jumpStarted) {
		j.leave("one")
		if err := j.start("a", false); err != nil {
			j.Fatal(err)
		}
		if err := j.start("a", false); !errors.Is(err, provider.ErrInstanceExists) {
			j.Fatalf("the second start returned %v, want ErrInstanceExists", err)
		}
		if n := j.records(); n != 1 {
			j.Errorf("%d starts are recorded, want 1", n)
		}
		j.join("two", nil)
		time.Sleep(3 * jumpStartTimeout)
		if n := j.executions("a"); n != 1 {
			j.Errorf("%d executions, want 1", n)
		}
	})
}

func TestJumpStart_APurgedInstanceDoesNotStartAgain(t *testing.T) {
	inJumpStart(t, nil, func(j *jumpStarted) {
		if err := j.start("a", true); err != nil {
			j.Fatal(err)
		}
		if _, err := durable.InstanceOf[[]string](j.client, "a").Wait(j.Context()); err != nil {
			j.Fatal(err)
		}
		if _, err := j.client.Purge(j.Context(), "a"); err != nil {
			j.Fatal(err)
		}
		time.Sleep(3 * jumpStartTimeout)
		if n := j.executions("a") + j.records(); n != 0 {
			j.Errorf("%d executions and records exist, want 0", n)
		}
	})
}

func TestJumpStart_WaitsForAScheduledStart(t *testing.T) {
	inJumpStart(t, nil, func(j *jumpStarted) {
		at := time.Now().Add(10 * time.Minute)
		if _, err := j.client.StartByName(j.Context(), "HelloSequence", nil, durable.InstanceID("a"), durable.StartAt(at)); err != nil {
			j.Fatal(err)
		}
		puts := func() (n int) {
			for _, e := range j.account.Log() {
				if e.Operation == "PutMessage" && strings.Contains(e.Path, "control") {
					n++
				}
			}
			return n
		}
		before := puts()
		time.Sleep(9 * time.Minute)
		if puts() != before || j.executions("a") != 0 {
			j.Error("the start was sent again or ran before it was due")
		}
		time.Sleep(3 * time.Minute)
		if j.executions("a") != 1 || j.records() != 0 {
			j.Errorf("%d executions and %d records; want 1 and 0", j.executions("a"), j.records())
		}
	})
}
