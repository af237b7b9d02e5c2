package durable_test

import (
	"context"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func fetch(_ context.Context, page string) (string, error)     { return "text of " + page, nil }
func translate(_ context.Context, text string) (string, error) { return strings.ToUpper(text), nil }

func translateAll(ctx *durable.Context, pages []string) ([]string, error) {
	branches := make([]*durable.Task[string], len(pages))
	for i, page := range pages {
		branches[i] = durable.Go(ctx, func() (string, error) {
			text, err := durable.CallActivity(ctx, fetch, page).Await()
			if err != nil {
				return "", err
			}
			return durable.CallActivity(ctx, translate, text).Await()
		})
	}
	return durable.AwaitAll(ctx, branches...)
}

// Run branches of several steps concurrently.
func ExampleGo() {
	registry := durable.NewRegistry(
		durable.Orchestrator("TranslateAll", translateAll),
		durable.Activity("Fetch", fetch),
		durable.Activity("Translate", translate),
	)
	runExample(registry, translateAll, []string{"one", "two"})
	// Output: [TEXT OF ONE TEXT OF TWO]
}

func firstTwo(ctx *durable.Context, pages []string) ([]string, error) {
	var tasks []*durable.Task[string]
	for _, page := range pages {
		tasks = append(tasks, durable.CallActivity(ctx, fetch, page))
	}
	var texts []string
	for t := range durable.AsCompleted(ctx, tasks...) {
		text, err := t.Await()
		if err != nil {
			return nil, err
		}
		if texts = append(texts, text[:4]); len(texts) == 2 {
			break
		}
	}
	return texts, nil
}

// Process results in the order in which they arrive.
func ExampleAsCompleted() {
	registry := durable.NewRegistry(
		durable.Orchestrator("FirstTwo", firstTwo),
		durable.Activity("Fetch", fetch),
	)
	runExample(registry, firstTwo, []string{"one", "two", "three"})
	// Output: [text text]
}
