package scattered_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/scattered"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestHub_ListsAllInstancesOnShortAndEmptyPages(t *testing.T) {
	t.Parallel()
	hub := scattered.Hub{Store: memhub.New()}
	client := durable.NewClient(hub, nil)
	var want []string
	for i := range 5 {
		id := fmt.Sprintf("i%d", i)
		want = append(want, id)
		if _, err := client.StartByName(t.Context(), "Main", nil, durable.InstanceID(id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{0, 1, 2, 3} {
		var got []string
		var sizes []int
		q := provider.Query{PageSize: size}
		for {
			page, err := hub.Instances(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(page.Instances))
			for _, s := range page.Instances {
				got = append(got, s.Instance.InstanceID)
			}
			if q.Continuation = page.Continuation; q.Continuation == "" {
				break
			}
		}
		wantSizes := []int{0, 2, 0, 2, 0, 1}
		if size == 1 {
			wantSizes = []int{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}
		}
		if !slices.Equal(got, want) || !slices.Equal(sizes, wantSizes) {
			t.Errorf("pages of %d: %q on pages of %v, want %q on pages of %v", size, got, sizes, want, wantSizes)
		}
	}
}
