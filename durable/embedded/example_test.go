package embedded_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A hub is created when its file is first opened. Acknowledged data is available when it is opened
// again.
func Example() {
	dir, err := os.MkdirTemp("", "hub")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "hub.db")
	ctx := context.Background()

	hub, err := embedded.Open(path, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	start := &history.ExecutionStarted{
		Header:   history.NewHeader(time.Now()),
		Instance: history.OrchestrationInstance{InstanceID: "order-42", ExecutionID: "1"},
		Name:     "PlaceOrder",
	}
	if err := hub.StartInstance(ctx, provider.TaskMessage{Event: start, Target: start.Instance}, nil); err != nil {
		log.Fatal(err)
	}
	if err := hub.Close(); err != nil {
		log.Fatal(err)
	}

	hub, err = embedded.Open(path, embedded.Config{Relaxed: true})
	if err != nil {
		log.Fatal(err)
	}
	s, err := hub.Instance(ctx, "order-42", provider.Fetch{})
	if err != nil {
		log.Fatal(err)
	}
	if err := hub.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Instance.InstanceID, s.Name, s.Status)
	// Output: order-42 PlaceOrder Pending
}
