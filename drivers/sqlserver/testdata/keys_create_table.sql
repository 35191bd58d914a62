create table manifold_documents.[document_keys] (
	tenant_id uniqueidentifier not null,
	build bigint not null,
	id_bytes varbinary(512) not null,
	place int not null,
	sort_key varbinary(1001) not null,
	position bigint,
	primary key clustered (tenant_id, build, id_bytes, place)
) with (data_compression = page);

-- and then

alter table manifold_documents.[document_keys] set (lock_escalation = disable);

-- and then

create index [ascending] on manifold_documents.[document_keys] (tenant_id, build, place, sort_key, id_bytes);

-- and then

create index [descending] on manifold_documents.[document_keys] (tenant_id, build, place, sort_key desc, id_bytes);
