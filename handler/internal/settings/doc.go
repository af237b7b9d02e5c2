// Package settings reads host.json, local.settings.json and the environment into a
// configuration. A table of [Row] values, generic over the configuration, says which
// settings there are; from it come what is read and refused, the JSON schema and the
// report of what is in effect. The package knows neither the engine nor HTTP.
package settings
