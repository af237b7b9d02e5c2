package handler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/labstack/echo/v4"
)

func resize(_ context.Context, picture string) (string, error) {
	return "small " + picture, nil
}

func makeThumbnail(ctx *durable.Context, picture string) (string, error) {
	return durable.CallActivity(ctx, resize, picture).Await()
}

// The async HTTP API pattern: a route of the app starts an orchestration and answers 202 with the URL
// of the status.
func ExampleCheckStatus() {
	app := handler.App{
		Registrations: []*durable.Registration{
			durable.Orchestrator("MakeThumbnail", makeThumbnail),
			durable.Activity("Resize", resize),
		},
		Routes: func(api *echo.Group, client *durable.Client) {
			api.POST("/thumbnails/:picture", func(c echo.Context) error {
				instance, err := durable.Start(c.Request().Context(), client, makeThumbnail, c.Param("picture"))
				if err != nil {
					return err
				}
				return handler.CheckStatus(c, instance.ID)
			})
		},
	}

	// handler.Main(app) does the rest in a program. This example uses a hub in a file, and a test
	// server instead of the Functions host.
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	quiet := slog.New(slog.DiscardHandler)
	hub, err := embedded.Open(filepath.Join(folder, "hub.db"), embedded.Config{Logger: quiet, Relaxed: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hub.Close() }()
	server := handler.New(app, handler.Config{Address: "127.0.0.1:0", Provider: hub, Logger: quiet})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- server.Run(ctx) }()
	public := httptest.NewServer(server)
	defer public.Close()

	response, err := http.Post(public.URL+"/thumbnails/harbour.png", "application/json", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = response.Body.Close()
	fmt.Println(response.StatusCode)
	for status := http.StatusAccepted; status == http.StatusAccepted; time.Sleep(10 * time.Millisecond) {
		response, err := http.Get(response.Header.Get("Location"))
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if status = response.StatusCode; status == http.StatusOK {
			var answer struct{ RuntimeStatus, Output string }
			_ = json.NewDecoder(strings.NewReader(string(body))).Decode(&answer)
			fmt.Println(status, answer.RuntimeStatus, answer.Output)
		}
	}
	stop()
	fmt.Println(<-ended)

	// Output:
	// 202
	// 200 Completed small harbour.png
	// <nil>
}
