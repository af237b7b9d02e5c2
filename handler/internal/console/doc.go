// Package console implements the web console of a task hub. Go templates render its pages on the
// server, at a path below the management API.
//
// # Add a page
//
// A page consists of a [route] in the list of its file, such as overviewRoutes in overview.go, and a
// template with the same name.
//
//  1. Write templates/NAME.html, which defines "main". Its data is a [view]; view.Data is the data of
//     the page. Links start with {{$.Base}}. Pass IDs and names in the query, not in the path, because
//     hosts change escaped characters in paths. Encode them with {{query "id" .ID}}: templates do not
//     know that attributes such as hx-get are URLs.
//  2. Write a function of a [visit] that reads the hub through v.hub and ends with v.page("NAME",
//     "Title", data). If it returns an error, the server shows an error page with the matching status.
//  3. Add a route for the function to a list, and a new list to allRoutes.
//
// # Add a part
//
// A part is a section of a page that is loaded later or that changes. It is a separate template in the
// page's file, and a route that ends with v.part("NAME", "PART", data). There are two ways to load it:
//
//   - Once: with htmx attributes, such as hx-get with hx-trigger="load" or "click".
//   - Continuously: with data-live="URL", on one element per page. The server renders the part as often
//     as route.live says and sends it as an event if it has changed. If events do not pass a proxy, the
//     page polls. The page updates at most every five seconds.
//
// In a part that is updated continuously, elements with an ID keep the focus, and elements with
// hx-preserve are not replaced. If the part contains an element with data-version and the version
// changes, all unfolded elements with the class "part" reload on their event "follow". Hidden fields in
// an element with the class "place" keep the current position of a list.
//
// # Add a form
//
// A form is a POST route. Its template includes {{template "csrf" $}} and is rendered only if
// {{$.CanWrite}}. The function reads fields with v.value("field") and ends with v.done("NAME?id=…",
// "What was done."). Before the function runs, the server checks three things: the caller may write, the
// request comes from a page of the console, and it contains the session's token. To ask for
// confirmation, set data-confirm="Question?" on a form or button.
//
// # Styles and scripts
//
// The Content-Security-Policy forbids inline scripts and style attributes. Use classes of console.css,
// SVG attributes, and functions of console.js.
package console
