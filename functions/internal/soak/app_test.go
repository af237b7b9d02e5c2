//go:build unix

package soak_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/labstack/echo/v4"
)

// traceVariable names the environment variable that makes this program a worker. Its value is
// the folder for the traces of activities.
const traceVariable = "SOAK_TRACE"

// Leases of the workers. They are shorter than the defaults, so that the partitions of a killed
// process are free sooner.
const (
	azureLease = 10 * time.Second
	logLease   = 15 * time.Second // the shortest that the service allows
)

// serve runs the app until a signal ends it.
func serve() error {
	cfg, err := handler.Load()
	if err != nil {
		return err
	}
	cfg.Storage.LeaseInterval, cfg.Storage.LeaseAcquireInterval = azureLease, azureLease/4
	cfg.PartitionLog.LeaseInterval, cfg.PartitionLog.BalanceInterval = logLease, time.Second
	cfg.Logger = handler.NewLogger(os.Stdout, cfg.LogLevel)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := handler.App{Registrations: functions, Routes: func(api *echo.Group, client *durable.Client) {
		api.GET("/soak/contents", func(c echo.Context) error {
			found, err := read(c.Request().Context(), client)
			if err != nil {
				return err
			}
			return c.JSON(200, found)
		})
		api.POST("/soak/clean", func(c echo.Context) error { return clean(c.Request().Context(), client) })
	}}
	return handler.New(app, cfg).Run(ctx)
}

// functions are the functions of the app.
var functions = []*durable.Registration{
	durable.Orchestrator("Steps", steps), durable.Orchestrator("Family", family), durable.Orchestrator("Move", move),
	durable.Orchestrator("Later", later), durable.Orchestrator("Listen", listen), durable.Orchestrator("Courier", courier),
	durable.Orchestrator("Shop", shop), durable.Orchestrator("Watch", watch),
	durable.Activity("Square", square),
	durable.Entity("account", durable.Op("Add", (*account).Add)),
	durable.Entity("tally", durable.Op("Note", (*tally).Note)),
}

// task is the input of the activity.
type task struct {
	Run string // unique; the trace has a line with it for each run
	N   int
	Pad string // makes the message large
}

// square appends a line to the trace and returns the square of N.
func square(_ context.Context, t task) (int, error) { return t.N * t.N, trace(t.Run) }

// trace appends a line to the file of this process.
func trace(line string) error {
	path := filepath.Join(os.Getenv(traceVariable), fmt.Sprint("runs-", os.Getpid()))
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}

// runOf returns the name of the nth activity of an instance.
func runOf(id string, n int) string { return fmt.Sprint(id, "/", n) }

// steps calls three activities in a row.
func steps(ctx *durable.Context, pad string) (sum int, err error) {
	for n := 1; n <= 3; n++ {
		s, err := durable.CallActivity(ctx, square, task{runOf(string(ctx.InstanceID()), n), n, pad}).Await()
		if err != nil {
			return 0, err
		}
		sum += s
	}
	return sum, nil
}

// children are the numbers of the children of a family.
var children = []int{1, 2, 3}

func childOf(id string, n int) string { return fmt.Sprint(id, "-child", n) }

// family runs children, which may be in other partitions: the first alone, then two at a time.
func family(ctx *durable.Context, _ durable.Void) (sum int, err error) {
	begin := func(n int) *durable.Task[int] {
		return durable.CallSubOrchestrator(ctx, steps, "", durable.InstanceID(childOf(string(ctx.InstanceID()), n)))
	}
	first, err := begin(1).Await()
	if err != nil {
		return 0, err
	}
	more, err := durable.AwaitAll(ctx, begin(2), begin(3))
	if err != nil {
		return 0, err
	}
	return first + more[0] + more[1], nil
}

// account is an entity that holds money.
type account struct{ Cents, Changes int }

func (a *account) Add(_ *durable.EntityContext, cents int) (durable.Void, error) {
	a.Cents += cents
	a.Changes++
	return durable.Void{}, nil
}

type transfer struct {
	From, To durable.EntityKey[account]
	Cents    int
}

// move locks two accounts and moves money.
func move(ctx *durable.Context, t transfer) (int, error) {
	unlock := durable.LockEntities(ctx, t.From, t.To)
	defer unlock()
	if _, err := durable.CallEntity(ctx, t.From, (*account).Add, -t.Cents).Await(); err != nil {
		return 0, err
	}
	_, err := durable.CallEntity(ctx, t.To, (*account).Add, t.Cents).Await()
	return t.Cents, err
}

// tally is an entity that counts signals by their tokens.
type tally struct{ Tokens map[string]int }

func (t *tally) Note(_ *durable.EntityContext, token string) (durable.Void, error) {
	if t.Tokens == nil {
		t.Tokens = map[string]int{}
	}
	t.Tokens[token]++
	return durable.Void{}, nil
}

// later signals an entity after a time in which the owner of its partition may die.
func later(ctx *durable.Context, key durable.EntityKey[tally]) (string, error) {
	ctx.Sleep(2 * time.Second)
	durable.SignalFrom(ctx, key, (*tally).Note, string(ctx.InstanceID()))
	return string(ctx.InstanceID()), nil
}

// message is the payload of an event: a token, or the end of the conversation.
type message struct {
	Token string
	End   *ending
}

// ending lists the tokens that a listener waits for before it ends.
type ending struct{ Tokens []string }

const word = durable.Event[message]("Word")

type conversation struct {
	Heard []string
	Last  *ending
}

// listen returns all tokens in the order of their arrival. It ends when it has heard the tokens
// that the last message lists. It continues as new after each third token.
func listen(ctx *durable.Context, c conversation) ([]string, error) {
	for c.Last == nil || slices.ContainsFunc(c.Last.Tokens, func(t string) bool { return !slices.Contains(c.Heard, t) }) {
		m, err := word.Wait(ctx).Await()
		switch {
		case err != nil:
			return nil, err
		case m.End != nil:
			c.Last = m.End
			continue
		}
		if c.Heard = append(c.Heard, m.Token); len(c.Heard)%3 == 0 {
			return durable.ContinueAsNew(ctx, listen, c)
		}
	}
	return c.Heard, nil
}

// letters is the number of events that a courier sends.
const letters = 3

func lettersOf(courier string) (tokens []string) {
	for n := range letters {
		tokens = append(tokens, fmt.Sprint(courier, "/letter", n+1))
	}
	return tokens
}

// courier sends events to another instance, with activities in between.
func courier(ctx *durable.Context, to string) (int, error) {
	id := string(ctx.InstanceID())
	for i, token := range lettersOf(id) {
		if err := word.RaiseFrom(ctx, durable.InstanceID(to), message{Token: token}); err != nil {
			return 0, err
		}
		if _, err := durable.CallActivity(ctx, square, task{Run: runOf(id, i+1), N: i}).Await(); err != nil {
			return 0, err
		}
	}
	return letters, nil
}

// bill is the output of shop.
type bill struct {
	Token   string // the results of the first two steps
	Unknown bool   // the outcome of the last step is unknown
}

// useOf returns the line that the third step of shop traces.
func useOf(id, token string) string { return runOf(id, 4) + "=" + token }

// shop runs two steps at once, then an activity, a step that uses their results, and a step that runs at
// most once. Each step takes long enough to be killed.
func shop(ctx *durable.Context, pad string) (b bill, err error) {
	id := string(ctx.InstanceID())
	step := func(name, line string, opts ...durable.StepOption) *durable.Task[string] {
		return durable.Step(ctx, name, func(context.Context) (string, error) {
			err := trace(line)
			h := fnv.New32a()
			_, _ = h.Write([]byte(line))
			time.Sleep(time.Duration(h.Sum32()%1000) * time.Millisecond)
			return rand.Text(), err
		}, opts...)
	}
	tokens, err := durable.AwaitAll(ctx, step("Draw", runOf(id, 1)), step("Draw", runOf(id, 2)))
	if err != nil {
		return b, err
	}
	b.Token = tokens[0] + tokens[1]
	if _, err = durable.CallActivity(ctx, square, task{Run: runOf(id, 3), Pad: pad}).Await(); err != nil {
		return b, err
	}
	if _, err = step("Use", useOf(id, b.Token)).Await(); err != nil {
		return b, err
	}
	_, err = step("Pay", runOf(id, 5), durable.AtMostOnce).Await()
	if b.Unknown = errors.Is(err, durable.ErrOutcomeUnknown); b.Unknown {
		err = nil
	}
	return b, err
}

// looks is the number of the first call of a watch that is done.
const looks = 4

// watch polls until it has made enough calls. It returns the number of the last call. Each wait is long enough for
// a kill.
func watch(ctx *durable.Context, _ durable.Void) (int, error) {
	id := string(ctx.InstanceID())
	return durable.Poll(ctx, "Look", durable.PollPolicy{Interval: 500 * time.Millisecond, Coefficient: 2}, func(_ context.Context, n int) (int, bool, error) {
		return n, n >= looks, trace(runOf(id, n))
	}).Await()
}

// contents is everything that a client sees in a hub.
type contents struct {
	Instances map[string]instance
	Entities  map[string]entity // by name and key, such as tally/a
}

type instance struct {
	Name, Status string
	Output       string
}

type entity struct {
	State    json.RawMessage
	LockedBy string
	Queue    int
}

// read reads all instances and entities of a hub.
func read(ctx context.Context, client *durable.Client) (*contents, error) {
	c := &contents{map[string]instance{}, map[string]entity{}}
	for s, err := range client.AllInstances(ctx, durable.Query{ExcludeEntities: true, Fetch: durable.Fetch{Output: true}}) {
		if err != nil {
			return nil, err
		}
		found := instance{Name: s.Name, Status: s.Status.String()}
		if s.Output != nil {
			found.Output = *s.Output
		}
		c.Instances[s.Instance.InstanceID] = found
	}
	for e, err := range client.AllEntities(ctx, durable.EntityQuery{FetchState: true, IncludeEmpty: true}) {
		if err != nil {
			return nil, err
		}
		c.Entities[e.ID.Name+"/"+e.ID.Key] = entity{e.State, string(e.LockedBy), e.QueueSize}
	}
	return c, nil
}

// clean purges all instances and deletes all entities of a hub. A caller repeats it until the hub
// is empty: the entities perform their deletion later.
func clean(ctx context.Context, client *durable.Client) error {
	if _, err := client.PurgeMany(ctx, durable.PurgeFilter{}); err != nil {
		return err
	}
	for e, err := range client.AllEntities(ctx, durable.EntityQuery{}) {
		if err != nil {
			return err
		}
		if err := client.DeleteEntity(ctx, e.ID); err != nil {
			return err
		}
	}
	_, err := client.CleanEntities(ctx, durable.EntityCleaning{ReorderWindow: time.Nanosecond})
	return err
}
