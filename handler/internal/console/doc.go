// Package console is the web console of a task hub: pages that Go templates make on the
// server, below the management API.
//
// A page is a [route] in the list of its file, such as overviewRoutes in overview.go, and a
// template of the same name in templates. To add one:
//
//  1. Write templates/NAME.html, which defines "main". It is executed with a [view], whose
//     Data is the page's own. Links begin with {{$.Base}}. IDs and names stand in the query,
//     never in the path, where hosts change what is escaped, and are put there by
//     {{query "id" .ID}}: templates do not know that attributes such as hx-get are URLs.
//  2. Write a function of a [visit] that reads the hub by v.hub and ends with v.page("NAME",
//     "Title", data). An error that it returns becomes an error page with the status that fits.
//  3. List it, and the list in allRoutes.
//
// What is loaded later, or changes, is a part: a template of its own in the page's file, and
// a route that ends with v.part("NAME", "PART", data). An element loads one by htmx (hx-get,
// hx-trigger="load" or "click"), or keeps one current by data-live="URL", one in a page: the
// route says how often the part is looked at. It is sent as events when it has changed, and
// polled if events do not come through. It changes at most every five seconds. Elements in it
// that have an ID keep the focus; elements with hx-preserve stay as they are. If it has an element
// with data-version, a change of that version reloads all elements of class part on the page that
// are not folded away, by their event "follow". Hidden fields in .place keep the page that they show.
//
// A form is a POST route. The template has {{template "csrf" $}} in the form, and shows it
// only if {{$.CanWrite}}; the function reads v.value("field") and ends with
// v.done("NAME?id=…", "What was done."). Whether the caller may write, comes from a page
// of the console and has sent the session's token was checked before. A form or button with
// data-confirm="Question?" asks first.
//
// The Content-Security-Policy allows neither inline scripts nor style attributes: use
// classes of console.css, attributes of SVG, and functions of console.js.
package console
