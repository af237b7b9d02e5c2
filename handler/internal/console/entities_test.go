package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
)

// A note is an entity with a state of any length.
type note struct{ Text string }

func (n *note) write(_ *durable.EntityContext, bytes int) (int, error) {
	n.Text = strings.Repeat("ä", bytes/len("ä"))
	return len(n.Text), nil
}

func TestEntity_ShowsTheFirstPartOfALongStateAndDownloadsAllOfIt(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, durable.Entity("Note", durable.Op("write", (*note).write)))
	for _, tt := range []struct {
		key, bytes, says string
		length           int
	}{
		{"long", "5000000", "First part of 4.8 MB", 5_000_000 + len(`{"Text":""}`)},
		{"short", "10", "<p class=\"hint\">21 B", 10 + len(`{"Text":""}`)},
	} {
		if err := a.client.SignalEntity(t.Context(), durable.EntityID{Name: "Note", Key: tt.key}, "write", []byte(tt.bytes)); err != nil {
			t.Fatal(err)
		}
		path := "name=Note&key=" + tt.key
		var page string
		patience.Until(t, "the entity has a state", func() bool {
			page = a.get("entity?" + path)
			return strings.Contains(page, "Download")
		})
		if len(page) > 3*maxShown || !strings.Contains(page, tt.says) {
			t.Errorf("the page of the %s state has %d bytes, want at most %d, and %q: %.500s", tt.key, len(page), 3*maxShown, tt.says, page)
		}
		w := a.send(http.MethodGet, follow(page, `id="download" href="([^"]+)"`), nil, nil)
		if w.Code != http.StatusOK || w.Body.Len() != tt.length || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
			t.Errorf("the download of the %s state: %d with %d bytes, want %d; %v", tt.key, w.Code, w.Body.Len(), tt.length, w.Header())
		}
	}
	if w := a.send(http.MethodGet, "entity/state?name=Note&key=nobody", nil, nil); w.Code != http.StatusNotFound {
		t.Errorf("the state of an unknown entity: %d %s", w.Code, w.Body)
	}
}

func (n *note) set(_ *durable.EntityContext, text string) (string, error) {
	n.Text = text
	return text, nil
}

func TestEntity_NoTextBecomesMarkup(t *testing.T) {
	t.Parallel()
	name := strings.ReplaceAll(evil, "/", "")
	a := newHubApp(t, durable.Entity(name, durable.Op("set", (*note).set)))
	id := durable.EntityID{Name: name, Key: "key " + name}
	input, err := json.Marshal(evil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.client.SignalEntity(t.Context(), id, "set", input); err != nil {
		t.Fatal(err)
	}
	path := "entity?" + url.Values{"name": {id.Name}, "key": {id.Key}}.Encode()
	var page string
	patience.Until(t, "the entity has a state", func() bool {
		page = a.get(path)
		return strings.Contains(page, "Download")
	})
	_, state, _ := strings.Cut(page, `id="state"`)
	checkEvilIsText(t, "the state", state)
	for _, path := range []string{path, "entities", "entities?name=" + url.QueryEscape(name), "hub", "entity?" + url.Values{"name": {name}, "key": {name}}.Encode()} {
		checkEvilIsText(t, path, a.get(path))
	}
}
