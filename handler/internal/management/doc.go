// Package management is the management HTTP API: that of the .NET extension
// (WebJobs.Extensions.DurableTask/HttpApiHandler.cs), and routes about the app itself.
// A table of [Route] values is what requests are matched with and what the OpenAPI document
// is made of.
package management
