package durable_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// snippetProgram is the program around each snippet.
const snippetProgram = `package snippet

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type order struct{ ID string }

func charge(context.Context, order) (int, error) { return 0, nil }
func ship(*durable.Context, order) (string, error) { return "", nil }

const approval = durable.Event[bool]("Approval")

type counter struct{}

func (*counter) Add(*durable.EntityContext, int) (int, error) { return 0, nil }

type account struct{}

func (*account) Deposit(*durable.EntityContext, float64) (string, error) { return "", nil }

const meter = durable.EntityKey[counter]("meter")

var client *durable.Client

func snippet(ctx *durable.Context, std context.Context, op *durable.EntityContext) {
	_, _ = std, op
	%s
}
`

// Each snippet is one statement in a program that compiles otherwise.
func TestCompiler_RejectsMismatchedTypes(t *testing.T) {
	t.Parallel()
	packages := exportData(t)
	for _, c := range []struct{ name, statement, want string }{
		{"an activity", `n, _ := durable.CallActivity(ctx, charge, order{}).Await(); var _ int = n`, ""},
		{"an activity with another input", `durable.CallActivity(ctx, charge, 7)`, "as order value"},
		{"the result of an activity as another type", `n, _ := durable.CallActivity(ctx, charge, order{}).Await(); var _ string = n`, "cannot use n"},
		{"an activity with a policy and tags", `durable.CallActivity(ctx, charge, order{}, durable.RetryPolicy{}, durable.Tags{})`, ""},
		{"an activity with an instance ID", `durable.CallActivity(ctx, charge, order{}, durable.InstanceID("x"))`, "cannot use durable.InstanceID"},
		{"an activity with a start time", `durable.CallActivity(ctx, charge, order{}, durable.StartAt)`, "cannot use durable.StartAt"},
		{"an orchestrator called as an activity", `durable.CallActivity(ctx, ship, order{})`, "ship"},
		{"an activity called as an orchestrator", `durable.CallSubOrchestrator(ctx, charge, order{})`, "charge"},
		{"a child", `durable.CallSubOrchestrator(ctx, ship, order{}, durable.InstanceID("x"), durable.Version("1"), durable.FireAndForget)`, ""},
		{"a child with another input", `durable.CallSubOrchestrator(ctx, ship, "x")`, "as order value"},
		{"a child with an option of continue-as-new", `durable.CallSubOrchestrator(ctx, ship, order{}, durable.DiscardEvents)`, "cannot use durable.DiscardEvents"},
		{"a call with a context.Context", `durable.CallActivity(std, charge, order{})`, "cannot use std"},
		{"a durable context as a context.Context", `charge(ctx, order{})`, "cannot use ctx"},
		{"continuing with another input", `durable.ContinueAsNew(ctx, ship, 7)`, "as order value"},
		{"continuing without events", `durable.ContinueAsNew(ctx, ship, order{}, durable.DiscardEvents, durable.Version("2"))`, ""},
		{"continuing with a policy", `durable.ContinueAsNew(ctx, ship, order{}, durable.RetryPolicy{})`, "cannot use durable.RetryPolicy"},
		{"raising another payload", `approval.Raise(std, client, "x", "yes")`, "cannot use \"yes\""},
		{"sending another payload", `approval.RaiseFrom(ctx, "x", 1)`, "cannot use 1"},
		{"sending from a client", `approval.RaiseFrom(std, "x", true)`, "cannot use std"},
		{"starting with another input", `durable.Start(std, client, ship, 7)`, "as order value"},
		{"starting with a policy", `durable.Start(std, client, ship, order{}, durable.RetryPolicy{})`, "cannot use durable.RetryPolicy"},
		{"registering a version", `durable.Orchestrator("Ship", ship, durable.Version("1"))`, ""},
		{"registering tags", `durable.Orchestrator("Ship", ship, durable.Tags{})`, "cannot use durable.Tags"},
		{"mapping other inputs", `durable.Map(ctx, charge, []string{"x"}, 2)`, "does not match"},
		{"calling an entity", `n, _ := durable.CallEntity(ctx, meter, (*counter).Add, 7).Await(); var _ int = n`, ""},
		{"calling an entity with another input", `durable.CallEntity(ctx, meter, (*counter).Add, "x")`, "as int value"},
		{"calling another entity's operation", `durable.CallEntity(ctx, meter, (*account).Deposit, 7)`, "(*account).Deposit"},
		{"the result of an operation as another type", `n, _ := durable.CallEntity(ctx, meter, (*counter).Add, 7).Await(); var _ string = n`, "cannot use n"},
		{"calling an entity by an ID", `durable.CallEntity(ctx, durable.EntityID{"counter", "meter"}, (*counter).Add, 7)`, "EntityID"},
		{"calling an entity by a string", `var key string; durable.CallEntity(ctx, key, (*counter).Add, 7)`, "key"},
		{"calling an entity from an operation", `durable.CallEntity(op, meter, (*counter).Add, 7)`, "cannot use op"},
		{"calling an entity from outside", `durable.CallEntity(std, meter, (*counter).Add, 7)`, "cannot use std"},
		{"calling a function that is not an operation", `durable.CallEntity(ctx, meter, charge, order{})`, "charge"},
		{"signaling an entity", `durable.SignalFrom(ctx, meter, (*counter).Add, 7, durable.SignalAfter(1), durable.SignalAt(ctx.Now()))`, ""},
		{"signaling an entity from an operation", `durable.SignalFrom(op, meter, (*counter).Add, 7)`, ""},
		{"signaling an entity with another input", `durable.SignalFrom(ctx, meter, (*counter).Add, "x")`, "as int value"},
		{"signaling an entity from outside", `durable.SignalFrom(std, meter, (*counter).Add, 7)`, "std"},
		{"signaling an entity with a policy", `durable.SignalFrom(ctx, meter, (*counter).Add, 7, durable.RetryPolicy{})`, "cannot use durable.RetryPolicy"},
		{"locking entities", `unlock := durable.LockEntities(ctx, meter, durable.EntityKey[account]("a"), durable.EntityID{"account", "b"}); defer unlock()`, ""},
		{"locking a string", `var key string; durable.LockEntities(ctx, key)`, "cannot use key"},
		{"locking from an operation", `durable.LockEntities(op, meter)`, "cannot use op"},
		{"calling an activity from an operation", `durable.CallActivity(op, charge, order{})`, "cannot use op"},
		{"an operation's context as a context.Context", `charge(op, order{})`, ""},
		{"starting from an operation", `durable.StartFrom(op, ship, order{}, durable.StartAt(op.Now()))`, ""},
		{"starting from an operation with another input", `durable.StartFrom(op, ship, 7)`, "as order value"},
		{"starting from an orchestrator", `durable.StartFrom(ctx, ship, order{})`, "cannot use ctx"},
		{"a client's signal", `durable.Signal(std, client, meter, (*counter).Add, 7)`, ""},
		{"a client's signal of another entity's operation", `durable.Signal(std, client, meter, (*account).Deposit, 7)`, "(*account).Deposit"},
		{"reading an entity as another", `a, _ := durable.ReadEntity(std, client, meter); var _ account = a`, "cannot use a"},
		{"registering an entity", `durable.Entity("Counter", durable.Op("add", (*counter).Add))`, ""},
		{"registering an entity with another's operation", `durable.Entity("Counter", durable.Op("add", (*counter).Add), durable.Op("deposit", (*account).Deposit))`, "durable.Operation[counter]"},
		{"registering an entity with another's state", `durable.Entity("Counter", durable.Op("add", (*counter).Add), durable.InitialState(func(durable.EntityID) account { return account{} }))`, "durable.Operation[counter]"},
		{"an error type that is not an error", `durable.ErrorType[order]("Order")`, "order does not satisfy error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := compile(fmt.Sprintf(snippetProgram, c.statement), packages)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s is rejected: %v", c.statement, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: error is %v, want one that contains %q", c.statement, err, c.want)
			}
		})
	}
}

// compile type-checks a program and returns the first error.
func compile(source string, packages map[string]string) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "snippet.go", source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		name, ok := packages[path]
		if !ok {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(name)
	})}
	_, err = config.Check("snippet", fset, []*ast.File{file}, nil)
	return err
}

// exportData returns the export data files of package durable and its dependencies.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := make(map[string]string)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p.Export
	}
}
