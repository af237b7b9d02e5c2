package durable_test

import (
	"context"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Account is an entity with a balance in cents.
type Account struct {
	Cents int64 `json:"cents"`
}

// Balance returns the balance.
func (a *Account) Balance(*durable.EntityContext, durable.Void) (int64, error) { return a.Cents, nil }

// Book adds an amount, which may be negative.
func (a *Account) Book(_ *durable.EntityContext, cents int64) (int64, error) {
	a.Cents += cents
	return a.Cents, nil
}

// Transfer is the input of transferMoney.
type Transfer struct {
	From, To durable.EntityKey[Account]
	Cents    int64
}

// transferMoney changes two accounts together. While it holds their locks, no other
// caller changes them.
func transferMoney(ctx *durable.Context, t Transfer) (string, error) {
	unlock := durable.LockEntities(ctx, t.From, t.To)
	defer unlock()
	balance, err := durable.CallEntity(ctx, t.From, (*Account).Balance, durable.Void{}).Await()
	if err != nil {
		return "", err
	}
	if balance < t.Cents {
		return fmt.Sprintf("%d is too much", t.Cents), nil
	}
	taken := durable.CallEntity(ctx, t.From, (*Account).Book, -t.Cents)
	given := durable.CallEntity(ctx, t.To, (*Account).Book, t.Cents)
	if _, err := durable.AwaitAll(ctx, taken, given); err != nil {
		return "", err
	}
	return fmt.Sprintf("moved %d", t.Cents), nil
}

// transfers runs several transfers concurrently.
func transfers(ctx *durable.Context, all []Transfer) ([]string, error) {
	if _, err := durable.CallEntity(ctx, "a", (*Account).Book, 100).Await(); err != nil {
		return nil, err
	}
	tasks := make([]*durable.Task[string], len(all))
	for i, t := range all {
		tasks[i] = durable.CallSubOrchestrator(ctx, transferMoney, t)
	}
	done, err := durable.AwaitAll(ctx, tasks...)
	if err != nil {
		return nil, err
	}
	rest := durable.CallEntity(ctx, "a", (*Account).Balance, durable.Void{})
	got := durable.CallEntity(ctx, "b", (*Account).Balance, durable.Void{})
	balances, err := durable.AwaitAll(ctx, rest, got)
	return append(done, fmt.Sprint(balances)), err
}

// Change several entities together in a critical section.
func ExampleLockEntities() {
	registry := durable.NewRegistry(
		durable.Orchestrator("Transfers", transfers),
		durable.Orchestrator("TransferMoney", transferMoney),
		durable.Entity("Account", durable.Op("balance", (*Account).Balance), durable.Op("book", (*Account).Book)),
	)
	runExample(registry, transfers, []Transfer{{"a", "b", 60}, {"b", "a", 1000}})
	// Output: [moved 60 1000 is too much [40 60]]
}

// Printer is an entity without a state. It only serves as a mutex that orchestrations
// share.
type Printer struct{}

const printer = durable.EntityKey[Printer]("third floor")

var onPaper []string // output of the activities

func printPage(_ context.Context, text string) (durable.Void, error) {
	onPaper = append(onPaper, text)
	return durable.Void{}, nil
}

// printDocument prints a whole document before another one is printed.
func printDocument(ctx *durable.Context, title string) (durable.Void, error) {
	unlock := durable.LockEntities(ctx, printer)
	defer unlock()
	for page := 1; page <= 3; page++ {
		if _, err := durable.CallActivity(ctx, printPage, fmt.Sprintf("%s %d", title, page)).Await(); err != nil {
			return durable.Void{}, err
		}
	}
	return durable.Void{}, nil
}

func printAll(ctx *durable.Context, titles []string) (durable.Void, error) {
	tasks := make([]*durable.Task[durable.Void], len(titles))
	for i, title := range titles {
		tasks[i] = durable.CallSubOrchestrator(ctx, printDocument, title)
	}
	_, err := durable.AwaitAll(ctx, tasks...)
	return durable.Void{}, err
}

// Orchestrations take turns with a mutex.
func Example_mutex() {
	registry := durable.NewRegistry(
		durable.Orchestrator("PrintAll", printAll),
		durable.Orchestrator("PrintDocument", printDocument),
		durable.Activity("PrintPage", printPage),
		durable.Entity[Printer]("Printer"),
	)
	onPaper = nil
	runExample(registry, printAll, []string{"report", "poem"})
	complete := 0
	for i := 0; i+2 < len(onPaper); i += 3 {
		if onPaper[i][:4] == onPaper[i+2][:4] {
			complete++
		}
	}
	fmt.Println(len(onPaper), "pages,", complete, "complete documents")
	// Output:
	// {}
	// 6 pages, 2 complete documents
}
