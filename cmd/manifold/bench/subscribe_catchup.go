package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

func followCatchUp(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	s, err := quietService(ctx, f, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.db.preload(ctx, s.tenant, f.events, f.streams, progress); err != nil {
		return Result{}, err
	}
	if err := execute(ctx, s.db.super, "checkpoint"); err != nil {
		return Result{}, err
	}
	fmt.Fprintln(progress, "catching up ...")
	result := Result{Name: f.subscribeName(fmt.Sprintf("--events %d --transport %s", f.events, f.transport)), Clients: 1}
	cpu, used, begin := s.watch(ctx), processorTime(), time.Now()
	subscriber, err := s.follow(f.transport, "start")
	if err != nil {
		return Result{}, err
	}
	defer subscriber.close()
	subscriber.at = 0 // the first event is at position 1
	release := context.AfterFunc(ctx, subscriber.close)
	defer release()
	if err := subscriber.awaitEnd(); err != nil {
		return Result{}, errors.Join(err, context.Cause(ctx))
	}
	measured := load{events: subscriber.at, took: time.Since(begin), processor: processorTime() - used}
	result.tellUsageOf(cpu, subscriber.at)
	if subscriber.at != int64(f.events) {
		return Result{}, fmt.Errorf("it has caught up at position %d of %d", subscriber.at, f.events)
	}
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "a plain select of the rows", selectLimit, progress)
	return result, err
}
