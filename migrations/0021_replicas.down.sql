drop table manifold.replica_beacons;
