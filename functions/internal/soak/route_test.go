//go:build unix

package soak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// route sends the requests of clients to a hub. After an error the request may have had its effect, or may
// have it later.
type route interface {
	name() string
	start(ctx context.Context, orchestrator, id string, input any) error
	raise(ctx context.Context, id string, m message) error
	signal(ctx context.Context, tally, token string) error
	// status returns the status of an instance, "" if it does not exist.
	status(ctx context.Context, id string) (string, error)
	read(ctx context.Context) (*contents, error)
	clean(ctx context.Context) error
	why(ctx context.Context, id string) string
}

// direct is the route of a client outside of the workers.
type direct struct{ client *durable.Client }

func (d direct) name() string { return "client" }

func (d direct) start(ctx context.Context, orchestrator, id string, input any) error {
	text, err := json.Marshal(input)
	if err != nil {
		return err
	}
	_, err = d.client.StartByName(ctx, orchestrator, text, durable.InstanceID(id))
	return err
}

func (d direct) raise(ctx context.Context, id string, m message) error {
	err := word.Raise(ctx, d.client, durable.InstanceID(id), m)
	if errors.Is(err, durable.ErrInstanceEnded) && m.End != nil { // an earlier attempt ended it
		return nil
	}
	return err
}

func (d direct) signal(ctx context.Context, key, token string) error {
	return durable.Signal(ctx, d.client, durable.EntityKey[tally](key), (*tally).Note, token)
}

func (d direct) status(ctx context.Context, id string) (string, error) {
	s, err := d.client.Status(ctx, durable.InstanceID(id), durable.Fetch{})
	if errors.Is(err, durable.ErrInstanceNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return s.Status.String(), nil
}

func (d direct) read(ctx context.Context) (*contents, error) { return read(ctx, d.client) }

func (d direct) clean(ctx context.Context) error { return clean(ctx, d.client) }

func (d direct) why(ctx context.Context, id string) string {
	w, err := d.client.Why(ctx, durable.InstanceID(id))
	return fmt.Sprintf("%+v, %v", w, err)
}

// managed is the route through the management API of a worker.
type managed struct{ worker *worker }

func (m managed) name() string { return m.worker.name() }

// call sends a request. It returns the response body if the status is in the list.
func (m managed) call(ctx context.Context, method, path string, body any, accepted ...int) (status int, answer []byte, err error) {
	url := m.worker.url()
	if url == "" {
		return 0, nil, errors.New("the worker does not listen yet")
	}
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, url+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, err
	}
	for _, status := range accepted {
		if resp.StatusCode == status {
			return status, answer, nil
		}
	}
	return resp.StatusCode, answer, fmt.Errorf("%s %s: %s %s", method, path, resp.Status, answer)
}

const api = "/api/durabletask/"

func (m managed) start(ctx context.Context, orchestrator, id string, input any) error {
	_, _, err := m.call(ctx, http.MethodPost, api+"orchestrators/"+orchestrator+"/"+id, input, http.StatusAccepted)
	return err
}

func (m managed) raise(ctx context.Context, id string, msg message) error {
	accepted := []int{http.StatusAccepted}
	if msg.End != nil { // an earlier attempt may have ended it
		accepted = append(accepted, http.StatusGone)
	}
	_, _, err := m.call(ctx, http.MethodPost, api+"instances/"+id+"/raiseEvent/"+string(word), msg, accepted...)
	return err
}

func (m managed) signal(ctx context.Context, key, token string) error {
	_, _, err := m.call(ctx, http.MethodPost, api+"entities/tally/"+key+"?op=Note", token, http.StatusAccepted)
	return err
}

func (m managed) status(ctx context.Context, id string) (string, error) {
	status, answer, err := m.call(ctx, http.MethodGet, api+"instances/"+id+"?showInput=false", nil, http.StatusOK, http.StatusAccepted, http.StatusNotFound)
	if err != nil || status == http.StatusNotFound {
		return "", err
	}
	var s struct {
		RuntimeStatus string `json:"runtimeStatus"`
	}
	err = json.Unmarshal(answer, &s)
	return s.RuntimeStatus, err
}

func (m managed) read(ctx context.Context) (*contents, error) {
	_, answer, err := m.call(ctx, http.MethodGet, "/api/soak/contents", nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var c contents
	return &c, json.Unmarshal(answer, &c)
}

func (m managed) clean(ctx context.Context) error {
	_, _, err := m.call(ctx, http.MethodPost, "/api/soak/clean", nil, http.StatusOK)
	return err
}

func (m managed) why(ctx context.Context, id string) string {
	_, answer, err := m.call(ctx, http.MethodGet, api+"instances/"+id+"/why", nil, http.StatusOK)
	return fmt.Sprintf("%s, %v", answer, err)
}
