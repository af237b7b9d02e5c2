package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

// everyHub maps each provider to a function that opens an empty hub.
var everyHub = map[string]func(t testing.TB) provider.Provider{
	"memory": func(testing.TB) provider.Provider { return newFakeHub() },
	"embedded": func(t testing.TB) provider.Provider {
		hub, err := embedded.Open(filepath.Join(t.TempDir(), "hub.db"), embedded.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := hub.Close(); err != nil {
				t.Error(err)
			}
		})
		return hub
	},
	"Azure Storage": func(t testing.TB) provider.Provider {
		connection, err := azurestorage.ParseConnectionString(azuritetest.Start(t))
		if err != nil {
			t.Fatal(err)
		}
		hub, err := azurestorage.Open(connection, azurestorage.Config{TaskHub: "Pages" + uuid.NewString()[:8]})
		if err != nil {
			t.Fatal(err)
		}
		return hub
	},
}

// HTTP trims spaces from headers, and clients may refuse other characters.
func TestPages_OfAListCanAllBeReadOverHTTPOnEachProvider(t *testing.T) {
	t.Parallel()
	for name, open := range everyHub {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := open(t)
			var instances, entities []string
			for i := range 125 {
				instances = append(instances, fmt.Sprintf(" i %03d ü ", i))
				entities = append(entities, fmt.Sprintf("@counter@k %03d ü ", i))
			}
			for _, id := range slices.Concat(instances, entities) {
				start := &history.ExecutionStarted{
					Header: history.NewHeader(fakeTime), Name: "Greet", Input: new(`{"state":"1","sorter":{}}`),
					Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "x"},
				}
				if err := hub.StartInstance(t.Context(), provider.TaskMessage{Event: start, Target: start.Instance}, nil); err != nil {
					t.Fatal(err)
				}
			}
			server := httptest.NewServer(readyServer(t, App{}, fakeConfig(t, hub)))
			defer server.Close()
			for _, tt := range []struct {
				path  string
				want  []string
				pages int // at least
			}{
				{"instances?instanceIdPrefix=+i", instances, 2},
				{"instances?top=7&instanceIdPrefix=+i", instances, 18},
				{"instances", slices.Concat(instances, entities), 3},
				{"entities?fetchState=true", entities, 2},
				{"entities/Counter?fetchState=true&top=100", entities, 2},
			} {
				got, pages := followPages(t, server.URL+managed+tt.path)
				if diff := cmp.Diff(tt.want, got); diff != "" || pages < tt.pages {
					t.Errorf("%s: %d pages, want %d (-want +got):\n%s", tt.path, pages, tt.pages, diff)
				}
			}
			for _, path := range []string{"instances", "entities"} {
				if status, _ := page(t, server.URL+managed+path, "YQ"); status != http.StatusBadRequest {
					t.Errorf("%s with an unknown token: %d, want 400", path, status)
				}
			}
		})
	}
}

// followPages returns the IDs in all pages of a list.
func followPages(t *testing.T, url string) (ids []string, pages int) {
	t.Helper()
	for token := ""; ; {
		pages++
		status, answer := page(t, url, token)
		if status != http.StatusOK || pages > 1000 {
			t.Fatalf("page %d of %s: %d", pages, url, status)
		}
		ids = append(ids, answer.ids...)
		if token = answer.token; token == "" {
			return ids, pages
		}
	}
}

type listPage struct {
	ids   []string
	token string
}

func page(t *testing.T, url, token string) (status int, p listPage) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set(management.HeaderContinuation, token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return answer.StatusCode, p
	}
	var rows []struct {
		InstanceID string
		EntityID   struct{ Name, Key string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.InstanceID == "" {
			row.InstanceID = "@" + row.EntityID.Name + "@" + row.EntityID.Key
		}
		p.ids = append(p.ids, row.InstanceID)
	}
	p.token = answer.Header.Get(management.HeaderContinuation)
	return answer.StatusCode, p
}

// A page of large inputs contains fewer instances than its maximum, and further pages follow.
func TestPages_OfAListAreLimitedInBytesOnEachProvider(t *testing.T) {
	t.Parallel()
	for name, open := range everyHub {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "Azure Storage" {
				processtest.SkipInShortRuns(t)
			}
			hub := open(t)
			large := strings.Repeat("x", provider.DefaultPageBytes/2)
			ids := []string{"i'0/ü", "i'1/ü", "i'2/ü"}
			for _, id := range ids {
				begin := &history.ExecutionStarted{
					Header: history.NewHeader(fakeTime), Name: "Greet", Input: new(`"` + large + `"`),
					Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "x"},
				}
				if err := hub.StartInstance(t.Context(), provider.TaskMessage{Event: begin, Target: begin.Instance}, nil); err != nil {
					t.Fatal(err)
				}
			}
			server := httptest.NewServer(readyServer(t, App{}, fakeConfig(t, hub)))
			defer server.Close()
			for path, want := range map[string]int{"instances?instanceIdPrefix=i": 2, "instances?showInput=false": 1} {
				got, pages := followPages(t, server.URL+managed+path)
				if diff := cmp.Diff(ids, got); diff != "" || pages != want {
					t.Errorf("%s: %d pages, want %d (-want +got):\n%s", path, pages, want, diff)
				}
			}
		})
	}
}
