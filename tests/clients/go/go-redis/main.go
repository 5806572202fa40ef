// go-redis as a client of ../reading. Replicas: RouteRandomly, a random node of the primary and its replicas.
package main

import (
	"context"
	"fmt"

	"forebay/clients/reading"

	"github.com/redis/go-redis/v9"
)

func main() {
	r := reading.New("go-redis", "github.com/redis/go-redis/v9", true)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.Addresses, RouteRandomly: r.Replicas})
	ctx := context.Background()
	get := func(key string) (string, error) { return client.Get(ctx, key).Result() }
	mget := func(keys []string) ([]string, error) {
		found, err := client.MGet(ctx, keys...).Result()
		values := make([]string, len(found))
		for i, one := range found {
			values[i] = fmt.Sprint(one)
		}
		return values, err
	}
	r.Loop(get, mget)
}
