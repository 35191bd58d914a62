-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @to int64: 9
-- @from int64: 5
-- @upserts mssql.NVarCharMax: [{"b":"61","v":9,"i":"a","d":"{\"status\":\"placed\"}","k0":"30706c61636564","k1":"10"}]
-- @deletes mssql.NVarCharMax: [{"b":"676f6e65","v":8}]
set nocount on;
set lock_timeout 10000;
set xact_abort on;
begin transaction;
update t set version = @to from manifold_documents.[documents] as t with (updlock, rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x and t.version = @from;
if @@rowcount = 1
begin
declare @b table (id_bytes varbinary(512) not null primary key, id nvarchar(512) not null, version bigint not null, document varchar(max) collate Latin1_General_100_BIN2_UTF8 not null, k0 varbinary(1001) not null, k1 varbinary(1001) not null);
insert into @b (id_bytes, id, version, document, k0, k1)
select convert(varbinary(512), j.id_bytes, 2), j.id, j.version, convert(varchar(max), j.document collate Latin1_General_100_BIN2_UTF8), convert(varbinary(1001), j.k0, 2), convert(varbinary(1001), j.k1, 2)
from openjson(@upserts) with (id_bytes varchar(1024) '$.b', id nvarchar(512) '$.i', version bigint '$.v', document nvarchar(max) '$.d', k0 varchar(2002) '$.k0', k1 varchar(2002) '$.k1') as j;
insert into manifold_documents.[document_keys] (tenant_id, build, id_bytes, place, sort_key)
select @tenant, @build, b.id_bytes, p.place, p.sort_key from @b as b
cross apply (values (1, b.k0), (2, b.k1)) as p (place, sort_key)
where not exists (select * from manifold_documents.[document_keys] as k where k.tenant_id = @tenant and k.build = @build and k.id_bytes = b.id_bytes and k.place = p.place)
and not exists (select * from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes and t.version >= b.version)
option (loop join, force order);
if @@rowcount < 2 * (select count(*) from @b)
update k set sort_key = p.sort_key from @b as b
cross apply (values (1, b.k0), (2, b.k1)) as p (place, sort_key)
inner join manifold_documents.[document_keys] as k with (rowlock, forceseek) on k.tenant_id = @tenant and k.build = @build and k.id_bytes = b.id_bytes and k.place = p.place
where k.sort_key <> p.sort_key and not exists (select * from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes and t.version >= b.version)
option (loop join, force order);
insert into manifold_documents.[documents] (tenant_id, build, id_bytes, id, version, document)
select @tenant, @build, b.id_bytes, b.id, b.version, b.document from @b as b
where not exists (select * from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes)
option (loop join, force order);
if @@rowcount < (select count(*) from @b)
update t set version = b.version, document = b.document from @b as b
inner join manifold_documents.[documents] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes
where t.version < b.version
option (loop join, force order);
delete k
from openjson(@deletes) with (id_bytes varchar(1024) '$.b', version bigint '$.v') as b
inner join manifold_documents.[documents] as t with (forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = convert(varbinary(512), b.id_bytes, 2)
inner join manifold_documents.[document_keys] as k with (rowlock, forceseek) on k.tenant_id = @tenant and k.build = @build and k.id_bytes = t.id_bytes
where t.version < b.version
option (loop join, force order);
delete t
from openjson(@deletes) with (id_bytes varchar(1024) '$.b', version bigint '$.v') as b
inner join manifold_documents.[documents] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = convert(varbinary(512), b.id_bytes, 2)
where t.version < b.version
option (loop join, force order);
update k set position = @to from manifold_documents.[document_keys] as k with (rowlock) where k.tenant_id = @tenant and k.build = @build and k.id_bytes = 0x and k.place = 0 and k.position = @from;
commit transaction;
select 1;
end
else
begin
rollback transaction;
select 0;
end;
