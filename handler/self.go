package handler

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/labstack/echo/v4"
)

// makePrimary answers POST makeprimary. An app without an app lease cannot be
// made the primary one (HttpApiHandler.cs, HandleMakePrimaryRequestAsync).
func (m *management) makePrimary(c echo.Context, _ query) error {
	const refusal = "This app does not use the app lease: every app on the task hub shares its work, and none is the primary one."
	if m.server.cfg.Storage.AppLease.Disabled {
		return badRequest(refusal)
	}
	err := m.primary.MakePrimary(c.Request().Context())
	switch {
	case errors.Is(err, provider.ErrNotSupported):
		return badRequest(refusal)
	case err != nil:
		return fmt.Errorf("make this the primary app: %w", err)
	}
	return c.NoContent(http.StatusOK)
}

// scale answers GET scale.
func (m *management) scale(c echo.Context, _ query) error {
	load, err := m.load.look(c.Request().Context())
	if errors.Is(err, provider.ErrNotSupported) {
		return &answerError{http.StatusNotImplemented, withCause("What stores the task hub cannot tell its load.", err)}
	}
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, load)
}

// scaling returns what the number of workers depends on.
func (c Config) scaling() (maxActivities, maxOrchestrators int, polling time.Duration) {
	worker := c.Worker.WithDefaults()
	return worker.MaxConcurrentActivities, worker.MaxConcurrentOrchestrators, c.Storage.WithDefaults().MaxQueuePollingInterval
}

// A configurationPayload is the effective configuration.
type configurationPayload struct {
	Mode     string                      `json:"mode"`
	Plan     string                      `json:"plan"`
	Address  string                      `json:"address"`
	AppRoot  string                      `json:"appRoot"`
	LogLevel string                      `json:"logLevel"`
	Key      string                      `json:"key"`
	Settings []settings.EffectiveSetting `json:"settings"`
	Notices  []string                    `json:"notices"`
	Problems []string                    `json:"problems"`
}

// configuration answers GET configuration, also while the configuration is
// wrong.
func (m *management) configuration(c echo.Context, _ query) error {
	cfg := m.server.cfg
	payload := configurationPayload{
		Mode: cfg.mode(), Plan: cfg.plan.String(), Address: secrets.Mask(cfg.Address), AppRoot: secrets.Mask(cfg.Root), LogLevel: strings.ToLower(cfg.LogLevel.String()),
		Key: "none", Settings: cfg.effective(), Notices: append([]string{}, cfg.Notices...), Problems: []string{},
	}
	if cfg.Key != "" {
		payload.Key = "***"
	}
	if cfg.Problem != nil {
		payload.Problems = strings.Split(cfg.Problem.Error(), "\n")
	}
	return writeJSON(c, http.StatusOK, payload)
}

// mode says whether the Functions host started the program.
func (c Config) mode() string {
	if c.BehindHost {
		return "Functions host"
	}
	return "standalone"
}
