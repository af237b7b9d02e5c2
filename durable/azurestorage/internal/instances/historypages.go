package instances

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// historyPages reads rows of a history.
type historyPages struct {
	histories *Histories
	query     store.Query
	scanner   wire.RowScanner
	rows      []*wire.HistoryRow // so far
	begun     bool
}

// last reports whether the last page has been read.
func (p *historyPages) last() bool { return p.begun && p.query.Continuation == "" }

// next reads one page.
func (p *historyPages) next(ctx context.Context) error {
	raws, continuation, err := p.histories.Table.Page(ctx, p.query)
	if err != nil {
		return err
	}
	p.begun, p.query.Continuation = true, continuation
	for _, raw := range raws {
		row, err := p.scanner.Row(raw)
		if err != nil {
			return err
		}
		row.Size = len(raw)
		p.rows = append(p.rows, row)
	}
	return nil
}

// rest reads all pages that have not been read and returns the rows of all.
func (p *historyPages) rest(ctx context.Context) ([]*wire.HistoryRow, error) {
	for !p.last() {
		if err := p.next(ctx); err != nil {
			return nil, err
		}
	}
	return p.rows, nil
}
