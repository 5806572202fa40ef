// rueidis as a client of ../reading. Replicas: SendToReplicas for all read commands.
package main

import (
	"context"
	"log"

	"forebay/clients/reading"

	"github.com/redis/rueidis"
)

func main() {
	r := reading.New("rueidis", "github.com/redis/rueidis", true)
	// Forebay does not push what changes (CLIENT TRACKING), and rueidis does not begin without this.
	options := rueidis.ClientOption{InitAddress: r.Addresses, DisableCache: true}
	if r.Replicas {
		options.SendToReplicas = func(cmd rueidis.Completed) bool { return cmd.IsReadOnly() }
	}
	client, err := rueidis.NewClient(options)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	get := func(key string) (string, error) {
		return client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
	}
	// One command where the slot is one; the client's own helper splits by slots.
	mget := func(keys []string) ([]string, error) {
		if reading.OneSlot(keys) {
			return client.Do(ctx, client.B().Mget().Key(keys...).Build()).AsStrSlice()
		}
		found, err := rueidis.MGet(client, ctx, keys)
		if err != nil {
			return nil, err
		}
		values := make([]string, len(keys))
		for i, key := range keys {
			message := found[key]
			if values[i], err = message.ToString(); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	r.Loop(get, mget)
}
