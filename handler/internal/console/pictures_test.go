package console_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/durablefunctions-go/durablefunctions/handler/browsertest"
)

// shop returns the functions of the app in the pictures of the documentation.
func shop() []*durable.Registration {
	var charges atomic.Int64
	type order struct {
		Customer string `json:"customer"`
		Cents    int    `json:"cents"`
	}
	approved := durable.Event[bool]("Approved")
	pack := durable.ActivityName[string, string]("PackItem")
	return []*durable.Registration{
		durable.Orchestrator("PlaceOrder", func(ctx *durable.Context, in order) (string, error) {
			if _, err := durable.Step(ctx, "ReserveStock", func(context.Context) (string, error) {
				time.Sleep(60 * time.Millisecond)
				return "shelf 4", nil
			}).Await(); err != nil {
				return "", err
			}
			retry := durable.RetryPolicy{MaxAttempts: 4, FirstInterval: 150 * time.Millisecond}
			if _, err := durable.ActivityName[int, string]("ChargeCard").Call(ctx, in.Cents, retry).Await(); err != nil {
				return "", err
			}
			var packed []*durable.Task[string]
			for _, item := range []string{"tea", "kettle", "six cups"} {
				packed = append(packed, pack.Call(ctx, item))
			}
			if _, err := durable.AwaitAll(ctx, packed...); err != nil {
				return "", err
			}
			ctx.SetCustomStatus("waiting for the approval of the export")
			if ok, err := approved.Wait(ctx).AwaitTimeout(72 * time.Hour); err != nil || !ok {
				return "canceled", err
			}
			return durable.OrchestratorName[order, string]("Ship").Call(ctx, in).Await()
		}),
		durable.Orchestrator("Ship", func(*durable.Context, order) (string, error) { return "shipped", nil }),
		durable.Orchestrator("ImportCatalog", func(*durable.Context, durable.Void) (string, error) {
			return "", errors.New("supplier 7 sent no prices")
		}),
		durable.Activity("ChargeCard", func(context.Context, int) (string, error) {
			time.Sleep(80 * time.Millisecond)
			if charges.Add(1) == 1 {
				return "", errors.New("the bank does not answer")
			}
			return "receipt 20417", nil
		}),
		durable.Activity("PackItem", func(_ context.Context, item string) (string, error) {
			time.Sleep(time.Duration(40*len(item)) * time.Millisecond)
			return item + " packed", nil
		}),
	}
}

// The pages in the pictures of the documentation show a waiting order, its reasons and its timeline.
func TestPictures_ShowAWaitingOrder(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, shop(), withKeys, func(cfg *handler.Config) { cfg.Storage.TaskHub = "Shop" })
	a.start(t, "PlaceOrder", "order-1042", `{"customer": "Contoso", "cents": 8900}`, "Running")
	a.awaitEvent(t, "order-1042", "Approved")
	a.start(t, "ImportCatalog", "import-2026-01", "null", "Failed")
	for i := range 20 {
		a.start(t, "Ship", durable.InstanceID(fmt.Sprintf("shipment-%d", 2000+i)), `{"customer": "Contoso"}`, "Completed")
	}
	a.signIn(b)
	b.Do(browsertest.See(`//*[contains(@class,"good")][.="ready"]`), browsertest.Press(`//button[.="Count"]`), browsertest.See(`//td[.="PlaceOrder"]`))
	b.Pictures("overview", 880)
	b.Do(chromedp.Navigate(a.url+"/instance?id=order-1042"), browsertest.See(`//*[@id="timeline"]//td[contains(.,"ReserveStock")]`), browsertest.See(`//*[@id="why"]//li[contains(.,'event "Approved"')]`), browsertest.See(`//*[@id="input"]/pre[contains(.,"Contoso")]`))
	b.Pictures("instance", 1060)
}
