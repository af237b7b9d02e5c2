package handler_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler"
)

type order struct {
	ID    string
	Cents int
}

type receipt struct{ Order, Text string }

// receipts is a queue that functions write to.
var receipts = handler.QueueOutput[receipt]("receipts", "receipts-to-print")

// confirm runs for each message of a queue. The message is an order in JSON.
func confirm(_ context.Context, call *handler.Invocation, o order) error {
	if o.Cents <= 0 {
		return fmt.Errorf("order %s costs nothing", o.ID) // the host redelivers the message and finally moves it to the poison queue
	}
	receipts.Put(call, receipt{o.ID, fmt.Sprintf("%d.%02d paid", o.Cents/100, o.Cents%100)})
	call.Logf("confirmed %s", o.ID)
	return nil
}

// nightly runs at 2:30 a.m. and starts an orchestration.
func nightly(ctx context.Context, call *handler.Invocation, _ handler.TimerInfo) error {
	_, err := durable.Start(ctx, call.Client, makeThumbnail, "the day's pictures")
	return err
}

// An app can combine functions with triggers, durable functions and HTTP routes. `go run .
// -write-functions .` writes the function.json of each trigger.
func ExampleTrigger() {
	app := handler.App{
		Registrations: []*durable.Registration{
			durable.Orchestrator("MakeThumbnail", makeThumbnail),
			durable.Activity("Resize", resize),
		},
		Triggers: []handler.Trigger{
			handler.Timer("Nightly", "0 30 2 * * *", nightly, handler.Timeout(time.Minute)),
			handler.Queue("Confirm", "orders", confirm, receipts),
		},
	}

	// handler.Main(app) does the rest in a program. This example plays the Functions host: it sends
	// each message as JSON and receives the outputs.
	const address = "127.0.0.1:0"
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	server := handler.New(app, handler.Config{
		BehindHost: true, Address: address, StorageType: handler.Embedded, Root: folder, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	for _, message := range []string{`{"ID":"A-7","Cents":1250}`, `{"ID":"A-8"}`} {
		invocation := fmt.Sprintf(`{"Data": {"message": %q}, "Metadata": {"DequeueCount": "1"}}`, fmt.Sprintf("%q", message))
		request := httptest.NewRequest("POST", "http://"+address+"/Confirm", strings.NewReader(invocation))
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, request)
		text, _ := io.ReadAll(answer.Body)
		fmt.Println(answer.Code, string(text))
	}
	stop()
	fmt.Println(<-ended)

	// Output:
	// 200 {"Outputs":{"receipts":"eyJPcmRlciI6IkEtNyIsIlRleHQiOiIxMi41MCBwYWlkIn0="},"Logs":["confirmed A-7"],"ReturnValue":null}
	// 500 {"Message":"order A-8 costs nothing"}
	// <nil>
}
