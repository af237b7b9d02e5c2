package random

import (
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/mlkem"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"hash/maphash"
	"io"
	mathrand "math/rand"
	randv2 "math/rand/v2"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/google/uuid"
)

func wrong(ctx *durable.Context, n int) (string, error) {
	_ = mathrand.Intn(n)                        // want `rand.Intn gives another value on each replay; use ctx.NewUUID\(\), a rand.New`
	mathrand.Shuffle(n, func(i, j int) {})      // want `rand.Shuffle gives`
	_ = randv2.N(10)                            // want `rand.N gives another value`
	public, _, _ := ed25519.GenerateKey(nil)    // want `ed25519.GenerateKey gives another value`
	_, _ = ecdsa.GenerateKey(nil, nil)          // want `ecdsa.GenerateKey gives`
	_, _ = rsa.GenerateKey(nil, 2048)           // want `rsa.GenerateKey gives`
	_, _ = ecdh.X25519().GenerateKey(nil)       // want `ecdh.Curve.GenerateKey gives`
	key, _ := mlkem.GenerateKey768()            // want `mlkem.GenerateKey768 gives`
	_, _ = key.EncapsulationKey().Encapsulate() // want `mlkem.EncapsulationKey768.Encapsulate gives`
	_, _ = cipher.NewGCMWithRandomNonce(nil)    // want `cipher.NewGCMWithRandomNonce gives`
	_ = ed25519.Verify(public, nil, nil)
	b := make([]byte, 8)
	rand.Read(b)                                             // want `rand.Read gives another value`
	io.ReadFull(rand.Reader, b)                              // want `rand.Reader gives another value`
	_ = maphash.MakeSeed()                                   // want `maphash.MakeSeed gives`
	id := uuid.New()                                         // want `^uuid.New gives another value on each replay; use ctx.NewUUID\(\)$`
	v7, err := uuid.NewV7()                                  // want `uuid.NewV7 gives`
	_, _ = uuid.NewRandom()                                  // want `uuid.NewRandom gives`
	_, _ = uuid.NewUUID()                                    // want `uuid.NewUUID gives`
	return id.String() + v7.String() + uuid.NewString(), err // want `uuid.NewString gives`
}

var namespace = uuid.MustParse("6ba7b811-9dad-11d1-80b4-00c04fd430c8")

var instance = uuid.NewString()

func ofTheProcess(ctx *durable.Context, in int) (string, error) {
	return instance, nil // want `uuid.NewString, reached via instance, gives another value`
}

func right(ctx *durable.Context, seed int64) (string, error) {
	r := mathrand.New(mathrand.NewSource(seed))
	p := randv2.New(randv2.NewPCG(uint64(seed), 1))
	sum := sha256.Sum256([]byte{byte(r.Intn(10)), byte(p.IntN(10))})
	id := ctx.NewUUID()
	return uuid.NewSHA1(namespace, append(sum[:], id[:]...)).String(), nil
}
