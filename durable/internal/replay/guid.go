package replay

import (
	"crypto/sha1" //nolint:gosec // it is what UUIDs of version 5 are made with
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// A GUID is an identifier of 16 bytes, in the order in which they are written.
type GUID [16]byte

// String returns g in lower case, with dashes.
func (g GUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", g[:4], g[4:6], g[6:8], g[8:10], g[10:])
}

// guidSpace is the namespace 9e952958-5e33-4daf-827f-2fa12937b875, which
// durabletask-dotnet gives to an orchestrator's GUIDs.
var guidSpace = [...]byte{0x9e, 0x95, 0x29, 0x58, 0x5e, 0x33, 0x4d, 0xaf, 0x82, 0x7f, 0x2f, 0xa1, 0x29, 0x37, 0xb8, 0x75}

// guids are the GUIDs of an execution.
type guids struct {
	x         *Execution
	made      int
	returned  int  // by NewGUID
	requested bool // an entity was sent something
	// ours says that the execution was begun by a program that made the IDs of
	// requests in its own way, and counted nothing but what NewGUID returned.
	ours bool
	// childFirst says that a child came before any request. Then nothing in the
	// history tells which program began it, and what NewGUID returns counts alone: it
	// is the same for both.
	childFirst bool
}

// recognize finds out from the first request in a history how the program that
// began it makes IDs.
func (g *guids) recognize(past []history.Event) {
	for _, e := range past {
		sent, ok := e.(*history.EventSent)
		if !ok || !history.IsEntity(sent.InstanceID) || entity.IsRelease(sent.Name) {
			continue
		}
		r, err := entity.DecodeRequest(sent.Input)
		if err != nil {
			return // a history without inputs
		}
		g.ours = r.ID == originOf(sent.InstanceID, r)
		return
	}
}

// NewGUID returns a GUID that is new, and the same in every replay: version 5, of
// the instance's ID, the current time and how many came before
// (durabletask-dotnet's src/Worker/Core/Shims/TaskOrchestrationContextWrapper.cs,
// NewGuid). Requests to entities and children without an ID of their own count,
// too, so that .NET makes the same ones when it replays the history; but not if a
// child is the first of them.
func (g *guids) NewGUID() GUID {
	g.x.check("NewUUID")
	n := g.made
	if g.ours || g.childFirst {
		n = g.returned
	}
	g.returned++
	g.made++
	return g.guid(n)
}

// requestGUID returns the GUID of a new request.
func (g *guids) requestGUID() GUID {
	g.made++
	return g.guid(g.made - 1)
}

func (g *guids) guid(n int) GUID {
	h := sha1.New() //nolint:gosec // see the import
	h.Write(guidSpace[:])
	// .NET's round-trip format "o" of a UTC time.
	_, _ = fmt.Fprintf(h, "%s_%s_%d", g.x.instance.InstanceID, g.x.now.UTC().Format("2006-01-02T15:04:05.0000000Z"), n)
	id := GUID(h.Sum(nil))
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return id
}

// CountChild counts a child for which .NET would have made an ID
// (TaskOrchestrationContextWrapper.cs, CallSubOrchestratorAsync): once, however
// often it is tried again.
func (g *guids) CountChild() {
	g.made++
	g.childFirst = g.childFirst || !g.requested
}
