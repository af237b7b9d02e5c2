// Package management implements the management HTTP API: the API of the .NET extension
// (WebJobs.Extensions.DurableTask/HttpApiHandler.cs), and additional routes about the app itself.
//
// A table of [Route] values defines the API. The server matches requests with it, and [OpenAPIDocument]
// describes it.
package management
