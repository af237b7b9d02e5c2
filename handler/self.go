package handler

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// makePrimary answers POST makeprimary as the extension does for an app that
// has no app lease.
func (m *management) makePrimary(echo.Context, query) error {
	return badRequest("This app does not use the app lease: every app on the task hub shares its work, and none is the primary one.")
}

// A configurationPayload is the effective configuration.
type configurationPayload struct {
	Mode     string             `json:"mode"`
	Plan     string             `json:"plan"`
	Address  string             `json:"address"`
	AppRoot  string             `json:"appRoot"`
	LogLevel string             `json:"logLevel"`
	Key      string             `json:"key"`
	Settings []effectiveSetting `json:"settings"`
	Notices  []string           `json:"notices"`
	Problems []string           `json:"problems"`
}

// configuration answers GET configuration, also while the configuration is
// wrong.
func (m *management) configuration(c echo.Context, _ query) error {
	cfg := m.server.cfg
	payload := configurationPayload{
		Mode: cfg.mode(), Plan: cfg.plan.String(), Address: cfg.Address, AppRoot: cfg.Root, LogLevel: strings.ToLower(cfg.LogLevel.String()),
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
