set nocount on;
set lock_timeout 10000;
set xact_abort on;
drop table if exists #manifold_stage;
create table #manifold_stage (id_bytes varbinary(512) not null primary key, id nvarchar(512) not null, version bigint not null, document nvarchar(max) not null, k0 varbinary(1001) not null, k1 varbinary(1001) not null);

-- and then

-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
set nocount on;
set lock_timeout 10000;
set xact_abort on;
insert into manifold_documents.[document_keys] (tenant_id, build, id_bytes, place, sort_key)
select @tenant, @build, b.id_bytes, p.place, p.sort_key from #manifold_stage as b
cross apply (values (1, b.k0), (2, b.k1)) as p (place, sort_key)
where not exists (select * from manifold_documents.[document_keys] as k where k.tenant_id = @tenant and k.build = @build and k.id_bytes = b.id_bytes and k.place = p.place)
and not exists (select * from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes and t.version >= b.version)
option (loop join, force order);
if @@rowcount < 2 * (select count(*) from #manifold_stage)
update k set sort_key = p.sort_key from #manifold_stage as b
cross apply (values (1, b.k0), (2, b.k1)) as p (place, sort_key)
inner join manifold_documents.[document_keys] as k with (rowlock, forceseek) on k.tenant_id = @tenant and k.build = @build and k.id_bytes = b.id_bytes and k.place = p.place
where k.sort_key <> p.sort_key and not exists (select * from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes and t.version >= b.version)
option (loop join, force order);
insert into manifold_documents.[documents] (tenant_id, build, id_bytes, id, version, document)
select @tenant, @build, b.id_bytes, b.id, b.version, b.document from #manifold_stage as b
where not exists (select * from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes)
option (loop join, force order);
if @@rowcount < (select count(*) from #manifold_stage)
update t set version = b.version, document = b.document from #manifold_stage as b
inner join manifold_documents.[documents] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes
where t.version < b.version
option (loop join, force order);
truncate table #manifold_stage;

-- and then

-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @to int64: 9
set nocount on;
set lock_timeout 10000;
set xact_abort on;
delete k from manifold_documents.[document_keys] as k with (rowlock) where k.tenant_id = @tenant and k.build = @build and k.id_bytes = 0x and k.place = 0;
insert into manifold_documents.[document_keys] (tenant_id, build, id_bytes, place, sort_key, position)
select @tenant, @build, 0x, 0, 0x, @to
where (select count_big(*) from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x)
= (select count_big(*) from manifold_documents.[document_keys] as k where k.tenant_id = @tenant and k.build = @build and k.place = 1);
