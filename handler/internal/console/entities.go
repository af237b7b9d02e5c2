package console

import (
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

var entitiesRoutes = []route{
	{method: http.MethodGet, path: "entities", serve: listEntities},
	{method: http.MethodGet, path: "entity", serve: showEntity},
	{method: http.MethodGet, path: "entity/now", serve: showEntityNow, live: 2 * time.Second},
	{method: http.MethodGet, path: "entity/state", serve: downloadState},
	{method: http.MethodPost, path: "entity/signal", serve: signalEntity},
}

// An entityList is the data of the list of entities.
type entityList struct {
	Name, Prefix string
	Empty        bool // includes entities without a state
	Page         *durable.EntityPage
	Next         template.URL // query of the next page, "" on the last
}

func listEntities(v *visit) error {
	l := entityList{Name: strings.TrimSpace(v.value("name")), Prefix: v.value("prefix"), Empty: v.value("empty") != ""}
	if l.Prefix != "" && l.Name == "" {
		return web.BadRequest("A key prefix requires an entity name.")
	}
	var err error
	l.Page, err = v.hub.Client.ListEntities(v.Request().Context(), durable.EntityQuery{
		Name: l.Name, KeyPrefix: l.Prefix, IncludeEmpty: l.Empty, PageSize: 50, Continuation: v.value("continuation"),
	})
	if err != nil {
		return management.BadToken(err)
	}
	if l.Page.Continuation != "" {
		l.Next = query("name", l.Name, "prefix", l.Prefix, "empty", v.value("empty"), "continuation", l.Page.Continuation)
	}
	return v.page("entities", "Entities", l)
}

// An entityPage is the data of the page of an entity.
type entityPage struct {
	ID    durable.EntityID
	State *durable.EntityState // nil if the hub stores nothing about the entity
	Shown shownPayload         // the state
}

func entityOf(v *visit) (entityPage, error) {
	p := entityPage{ID: durable.EntityID{Name: v.value("name"), Key: v.value("key")}}
	// The key that equals the prefix is the first of all keys with the prefix.
	found, err := v.hub.Client.ListEntities(v.Request().Context(), durable.EntityQuery{
		Name: p.ID.Name, KeyPrefix: p.ID.Key, IncludeEmpty: true, FetchState: true, PageSize: 1,
	})
	if err != nil {
		return p, err
	}
	if len(found.Unreadable) > 0 {
		return p, found.Unreadable[0].Cause
	}
	if len(found.Entities) > 0 && found.Entities[0].ID.InstanceID() == p.ID.InstanceID() {
		p.State = found.Entities[0]
		p.Shown = showPayload(p.text())
	}
	return p, nil
}

// text returns the state, or nil if the entity has none.
func (p entityPage) text() *string {
	if p.State == nil || !p.State.Exists {
		return nil
	}
	text := string(p.State.State)
	return &text
}

func showEntity(v *visit) error {
	p, err := entityOf(v)
	if err != nil {
		return err
	}
	return v.page("entity", p.ID.String(), p)
}

func showEntityNow(v *visit) error {
	p, err := entityOf(v)
	if err != nil {
		return err
	}
	return v.part("entity", "now", p)
}

// downloadState answers GET entity/state with the complete state.
func downloadState(v *visit) error {
	p, err := entityOf(v)
	if err != nil {
		return err
	}
	text := p.text()
	if text == nil {
		return web.AnswerWith(http.StatusNotFound, web.ErrorBody{Message: "Entity " + p.ID.String() + " has no state."})
	}
	return v.download("state", *text)
}

// signalEntity answers POST entity/signal. The entity need not exist: a signal creates it.
func signalEntity(v *visit) error {
	id, operation := durable.EntityID{Name: v.value("name"), Key: v.value("key")}, strings.TrimSpace(v.value("operation"))
	if operation == "" {
		return web.BadRequest("The operation needs a name.")
	}
	if len(id.Name)+len(operation) > web.MaxName {
		return web.BadRequest("The names of an entity and its operation must not exceed %d bytes.", web.MaxName)
	}
	input, err := web.ParseJSON([]byte(v.value("input")), notJSON)
	if err != nil {
		return err
	}
	if err := v.hub.Client.SignalEntity(v.Request().Context(), id, operation, input); err != nil {
		return err
	}
	return v.done("entity?"+string(query("name", id.Name, "key", id.Key)), "Sent "+operation+" to "+id.String()+".")
}

// notJSON returns the error for a form field that is not valid JSON.
func notJSON(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return web.BadRequest("That is not JSON: %v, at byte %d. A text needs quotes.", syntax, syntax.Offset)
	}
	return web.BadRequest("That is not JSON: %v. A text needs quotes.", err)
}
