// Package settings reads host.json, local.settings.json and environment variables into a configuration.
//
// A table of [Row] values describes the settings. It is generic over the configuration type. The
// package validates values, writes the JSON schema, and reports the effective settings from this table.
// It depends on neither the engine nor HTTP.
package settings
