package management

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// appAPI implements the operations on the app itself.
type appAPI struct{ *API }

// makePrimary answers POST makeprimary. It fails if the app does not use the app lease
// (HttpApiHandler.cs, HandleMakePrimaryRequestAsync).
func (m appAPI) makePrimary(c echo.Context, _ web.Query) error {
	const refusal = "This app does not use the app lease: all apps share the work of the task hub, and none is the primary app."
	if !m.cfg.AppLease {
		return web.BadRequest(refusal)
	}
	err := m.hub.MakePrimary(c.Request().Context())
	switch {
	case errors.Is(err, durable.ErrNotSupported):
		return web.BadRequest(refusal)
	case err != nil:
		return fmt.Errorf("make this the primary app: %w", err)
	}
	return c.NoContent(http.StatusOK)
}

// scale answers GET scale.
func (m appAPI) scale(c echo.Context, _ web.Query) error {
	load, err := m.Scale(c.Request().Context())
	if errors.Is(err, durable.ErrNotSupported) {
		return web.AnswerWith(http.StatusNotImplemented, web.WithCause("The storage of the task hub does not report its load.", err))
	}
	if err != nil {
		return err
	}
	return web.WriteJSON(c, http.StatusOK, load)
}

// A Configuration is the answer to GET configuration.
type Configuration struct {
	Mode     string                      `json:"mode"`
	Plan     string                      `json:"plan"`
	Address  string                      `json:"address"`
	AppRoot  string                      `json:"appRoot"`
	LogLevel string                      `json:"logLevel"`
	Key      string                      `json:"key"`
	ReadKey  string                      `json:"readKey"`
	Settings []settings.EffectiveSetting `json:"settings"`
	Notices  []string                    `json:"notices"`
	Problems []string                    `json:"problems"`
}

// configuration answers GET configuration, even if the configuration is not valid.
func (m appAPI) configuration(c echo.Context, _ web.Query) error {
	return web.WriteJSON(c, http.StatusOK, m.Configuration())
}

// A HealthPayload describes the state of the app.
type HealthPayload struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
	// Waiting lists the functions that instances wait for, because this worker does not know or run
	// them or because they do not yield.
	Waiting []string `json:"waiting,omitempty"`
	// Stacks contains the stack of each function that does not yield.
	Stacks []stackPayload `json:"stacks,omitempty"`
	// Undecodable lists messages that this app cannot decode.
	Undecodable *undecodablePayload `json:"undecodable,omitempty"`
	// BlockedPartitions lists partitions that this app's worker cannot open or whose mail it cannot
	// read.
	BlockedPartitions *blockedPayload `json:"blockedPartitions,omitempty"`
}

// A stackPayload is the stack of a function that does not yield, for one of its instances.
type stackPayload struct {
	Function string `json:"function"`
	Stack    string `json:"stack"`
}

// stackOf adds the stack of f, if it has one.
func (p *HealthPayload) stackOf(f durable.BlockedFunction) {
	if f.Stack == "" {
		return
	}
	function := f.Kind + " " + quoteName(f.Name, f.Version)
	if f.Operation != "" {
		function = fmt.Sprintf("operation %q of %s", f.Operation, function)
	}
	p.Stacks = append(p.Stacks, stackPayload{function, f.Stack})
}

// Paths of health checks in a standalone app, in addition to the paths below the management API.
const (
	LivePath  = "/health/live"
	ReadyPath = "/health/ready"
)

// MetricsPath is the path of the metrics in a standalone app that serves them to Prometheus.
const MetricsPath = "/metrics"

// metrics answers GET /metrics for callers with a key, in every state of the app.
func (m appAPI) metrics(c echo.Context) error {
	if !m.Access.reads(c.Request()) {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, bearer)
		return c.NoContent(http.StatusUnauthorized)
	}
	web.LimitAnswer(c)
	m.cfg.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}

// live answers GET health/live.
func (m appAPI) live(c echo.Context, _ web.Query) error {
	return web.WriteJSON(c, http.StatusOK, HealthPayload{Status: "live"})
}

// ready answers GET health/ready. Only callers with the key get the reasons. Behind the host, which
// checks keys, all callers do.
func (m appAPI) ready(c echo.Context, _ web.Query) error {
	payload, status := m.Health(c.Request().Context()), http.StatusOK
	if payload.Status != statusReady {
		status = http.StatusServiceUnavailable
		c.Response().Header().Set(echo.HeaderRetryAfter, web.RetryUnavailable)
	}
	if !m.Access.full(c.Request()) {
		payload = HealthPayload{Status: payload.Status}
	}
	return web.WriteJSON(c, status, payload)
}

const (
	statusReady       = "ready"
	statusUnavailable = "unavailable"
)

// Readiness requests check the storage at most once per CheckInterval, for at most CheckTimeout.
const (
	CheckInterval = 5 * time.Second
	CheckTimeout  = 5 * time.Second
)

// A checkup caches the result of the last check of a hub.
type checkup struct {
	check func(context.Context) error

	mu  sync.Mutex // guards the fields below
	at  time.Time
	err error
}

// now returns nil if the hub is usable.
func (u *checkup) now(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at.IsZero() || time.Since(u.at) >= CheckInterval {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CheckTimeout)
		defer cancel()
		u.err, u.at = u.check(ctx), time.Now()
	}
	return u.err
}

// undecodablePayload lists messages that this process cannot decode.
type undecodablePayload struct {
	Count    int                  `json:"count"`
	Messages []undecodableMessage `json:"messages"`
}

type undecodableMessage struct {
	Queue     string    `json:"queue"`
	MessageID string    `json:"messageId"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
	SetAside  bool      `json:"setAside"`
}

// maxUndecodableShown is the largest number of messages in an answer.
const maxUndecodableShown = 20

// undecodable returns the undecodable messages for a health check, or nil.
func (m appAPI) undecodable() *undecodablePayload {
	if m.hub == nil {
		return nil
	}
	all := m.hub.Undecodable()
	if len(all) == 0 {
		return nil
	}
	payload := &undecodablePayload{Count: len(all)}
	for _, u := range all[:min(len(all), maxUndecodableShown)] {
		payload.Messages = append(payload.Messages, undecodableMessage{u.Queue, u.ID, secrets.Mask(u.Cause), u.Since.UTC(), u.SetAside})
	}
	return payload
}

// blockedPayload lists partitions that this process cannot serve.
type blockedPayload struct {
	Count      int                `json:"count"`
	Partitions []blockedPartition `json:"partitions"`
}

type blockedPartition struct {
	Partition int                       `json:"partition"`
	Problem   provider.PartitionProblem `json:"problem"`
	Reason    string                    `json:"reason"`
	Since     time.Time                 `json:"since"`
}

// blocked returns the blocked partitions for a health check, or nil. all reports whether the worker can
// serve no partition because of them.
func (m appAPI) blocked() (payload *blockedPayload, all bool) {
	if m.hub == nil {
		return nil, false
	}
	partitions, all := m.hub.BlockedPartitions()
	if len(partitions) == 0 {
		return nil, false
	}
	payload = &blockedPayload{Count: len(partitions)}
	for _, p := range partitions {
		payload.Partitions = append(payload.Partitions, blockedPartition{p.Partition, p.Problem, secrets.Mask(p.Cause), p.Since.UTC()})
	}
	return payload, all
}

// A retriedPayload is the answer to POST undecodable/retry.
type retriedPayload struct {
	Messages int `json:"messagesPutBack"`
}

// retryUndecodable answers POST undecodable/retry.
func (m appAPI) retryUndecodable(c echo.Context, _ web.Query) error {
	n, err := m.hub.RetryUndecodable(c.Request().Context())
	if err != nil {
		return fmt.Errorf("move undecodable messages back into their queues; %d were moved: %w", n, err)
	}
	return web.WriteJSON(c, http.StatusOK, retriedPayload{n})
}

// A backupPayload is the answer to POST backup.
type backupPayload struct {
	Path  string `json:"backup"`
	Bytes int64  `json:"bytes"`
}

// backup answers POST backup.
func (m appAPI) backup(c echo.Context, q web.Query) error {
	path, began := q.Text("path"), time.Now()
	if !filepath.IsAbs(path) {
		return web.BadRequest("The path is %q; want the absolute path of a new file on the machine of this app.", path)
	}
	bytes, err := m.hub.Backup(c.Request().Context(), path)
	switch {
	case errors.Is(err, durable.ErrNotSupported):
		return web.AnswerWith(http.StatusNotImplemented, web.WithCause("The task hub is not in a local file.", err))
	case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return web.BadRequest("The backup cannot be created: %v", err)
	case err != nil:
		return fmt.Errorf("write the backup %s: %w", path, err)
	}
	m.logger.Info("the task hub was backed up", "event", "HubBackedUp", "taskHub", m.cfg.TaskHub, "path", path, "bytes", bytes,
		"took", time.Since(began).String(), "requestId", web.RequestID(c))
	return web.WriteJSON(c, http.StatusOK, backupPayload{path, bytes})
}

// openAPI answers GET openapi.json.
func (m appAPI) openAPI(c echo.Context, _ web.Query) error {
	l := LinksOf(c)
	return web.WriteJSON(c, http.StatusOK, OpenAPIDocument(m.Routes, l.origin+l.base))
}
