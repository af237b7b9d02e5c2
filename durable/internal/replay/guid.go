package replay

import (
	"crypto/sha1" //nolint:gosec // UUIDs of version 5 use SHA-1
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// A GUID is an identifier of 16 bytes in text order.
type GUID [16]byte

// String returns g in lower case, with dashes.
func (g GUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", g[:4], g[4:6], g[6:8], g[8:10], g[10:])
}

// guidSpace is the namespace of the GUIDs of an orchestrator in durabletask-dotnet:
// 9e952958-5e33-4daf-827f-2fa12937b875.
var guidSpace = [...]byte{0x9e, 0x95, 0x29, 0x58, 0x5e, 0x33, 0x4d, 0xaf, 0x82, 0x7f, 0x2f, 0xa1, 0x29, 0x37, 0xb8, 0x75}

// guids creates the GUIDs of an execution: request IDs, and the results of NewGUID.
type guids struct {
	x *Execution
	// made counts everything that .NET would count: GUIDs returned by NewGUID, requests to
	// entities, and children without an ID.
	made      int
	returned  int  // by NewGUID
	requested bool // a request was sent to an entity
	// idIsOrigin is set if the program that started the execution uses origins as request IDs.
	// For such a program the counter only counts the GUIDs that NewGUID returned.
	idIsOrigin bool
	// childFirst is set if a child without an ID came before any request. The history then does
	// not show which program started it, so NewGUID counts only its own results: both kinds of
	// programs get the same GUIDs.
	childFirst bool
}

// recognize determines from the first request in the history how the program that started it
// creates request IDs.
func (g *guids) recognize(past []history.Event) {
	for _, e := range past {
		sent, ok := e.(*history.EventSent)
		if !ok || !history.IsEntity(sent.InstanceID) || entity.IsRelease(sent.Name) {
			continue
		}
		r, err := entity.DecodeRequest(sent.Input)
		if err != nil {
			return // the history has no inputs
		}
		g.idIsOrigin = r.ID == originOf(sent.InstanceID, r)
		return
	}
}

// NewGUID returns a new GUID that is the same in every replay. It is of version 5, derived from
// the instance ID, the current time and a counter (durabletask-dotnet's
// src/Worker/Core/Shims/TaskOrchestrationContextWrapper.cs, NewGuid). Requests to entities and
// children without an ID also advance the counter, as in .NET, which can therefore replay the
// history. There are two exceptions, idIsOrigin and childFirst: the counter then counts only the
// GUIDs that NewGUID returned.
func (g *guids) NewGUID() GUID {
	g.x.check("NewUUID")
	n := g.made
	if g.idIsOrigin || g.childFirst {
		n = g.returned
	}
	g.returned++
	g.made++
	g.x.readsTime = true
	return g.guid(n)
}

// requestGUID returns the ID of a new request.
func (g *guids) requestGUID() GUID {
	g.made++
	return g.guid(g.made - 1)
}

func (g *guids) guid(n int) GUID {
	h := sha1.New() //nolint:gosec // see the import
	h.Write(guidSpace[:])
	// .NET's round-trip format "o" for UTC.
	_, _ = fmt.Fprintf(h, "%s_%s_%d", g.x.instance.InstanceID, g.x.now.UTC().Format("2006-01-02T15:04:05.0000000Z"), n)
	id := GUID(h.Sum(nil))
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return id
}

// CountChild counts a child for which .NET would generate an ID
// (TaskOrchestrationContextWrapper.cs, CallSubOrchestratorAsync). Retries of the child do not
// count.
func (g *guids) CountChild() {
	g.made++
	g.childFirst = g.childFirst || !g.requested
}
